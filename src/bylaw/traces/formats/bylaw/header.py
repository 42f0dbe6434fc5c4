"""The first line of Bylaw JSONL: which version, where the trace came from, and how to read what follows."""

from __future__ import annotations

import msgspec

from bylaw.traces.formats.bylaw.lookup import SecondLook, is_header
from bylaw.traces.formats.bylaw.wire import VERSION, Header
from bylaw.traces.formats.reader import report
from bylaw.traces.formats.typed import explain
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.place import Place
from bylaw.traces.records.problems import Problems

_decode = msgspec.json.Decoder(Header).decode


def read_header(raw: bytes, place: int | Place, problems: Problems) -> Header:
    """The header on this line. Without one, the file is read as one written by hand. Raises InputError."""
    if not is_header(raw):
        return Header(bylaw=VERSION)
    strict = Problems(problems.file)  # nothing that follows can be trusted without a header that is understood
    version = decode_quickly(raw)["bylaw"]
    if version != VERSION:
        message = f"trace version `{version}` is not supported"
        help = f"this Bylaw reads `{VERSION}`"
        report(strict, place, raw, ("bylaw",), code="unsupported-version", message=message, help=help)
        strict.settle()
    try:
        return _decode(SecondLook(problems).without_unknown(place, raw))
    except REFUSED as error:
        message, path = explain(str(error))
        report(strict, place, raw, tuple(path), code="wrong-type", message=message)
    strict.settle()
    raise AssertionError("a header that is refused is reported")
