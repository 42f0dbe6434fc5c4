"""Opens Bylaw JSONL: reads the header, and picks the reader for handwritten files or for those that Bylaw wrote."""

from __future__ import annotations

import msgspec

from bylaw.traces.formats.bylaw.canonical import CanonicalReader
from bylaw.traces.formats.bylaw.handwritten import HandwrittenReader
from bylaw.traces.formats.bylaw.header import UnknownKeys, is_header
from bylaw.traces.formats.bylaw.lines import HINTS, VERSION, Header, summarize
from bylaw.traces.formats.reader import Opened, Reader
from bylaw.traces.formats.record import explain
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.layout import Records
from bylaw.traces.records.problems import Place, Problems

_decode = msgspec.json.Decoder(Header).decode


def reader(opened: Opened) -> Reader:
    header = header_of(opened)
    if header.resolved:
        return CanonicalReader(opened.problems, header)
    return HandwrittenReader(opened.problems, header, opened.survey(summarize, HINTS))


def header_of(opened: Opened) -> Header:
    """The header of the file. A file without one counts as handwritten. Raises InputError."""
    ignored = Problems(opened.source.name, skip_bad=True)
    for block in Records(opened.source, opened.layout, ignored).blocks():
        for raw, place in block:
            if raw.strip():
                return _read_header(raw, place, opened.problems) if is_header(raw) else Header(VERSION)
    return Header(VERSION)


def _read_header(raw: bytes, place: int | Place, problems: Problems) -> Header:
    strict = Problems(problems.file)  # without a valid header, the lines that follow cannot be interpreted
    version = decode_quickly(raw)["bylaw"]
    if version != VERSION:
        message, help = f"trace version `{version}` is not supported", f"this Bylaw reads `{VERSION}`"
        strict.report(place, raw, ("bylaw",), code="unsupported-version", message=message, help=help)
        strict.settle()
    try:
        return _decode(UnknownKeys(problems).remove(place, raw))
    except REFUSED as error:
        message, path = explain(str(error))
        strict.report(place, raw, path, code="wrong-type", message=message)
    strict.settle()
    raise AssertionError("a header that is refused is reported")
