"""Content hashes: a record's id is the SHA-256 of its payload in canonical JSON.

Canonical as the format's own writer does it, which is not what its specification says: keys and strings in NFC, keys
sorted by UTF-8 bytes, no spaces, whole numbers without a fraction, other floats at their shortest without an exponent,
and \\n \\t \\r \\b \\f for those control characters. Ids hashed with \\u00xx for these, as specified, match too.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.reader import report
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.place import Place
from bylaw.traces.records.problems import Problems

IDS_VERIFIED = 200
"""records that are verified where nobody asked: enough to notice, too few to slow a long file down"""
PREFIX = "sha256:"
_SHORT_ESCAPE = re.compile(rb'\\(["\\bfnrt])')
_LONG = {b"b": rb"\u0008", b"f": rb"\u000c", b"n": rb"\u000a", b"r": rb"\u000d", b"t": rb"\u0009"}


class _Hashed(Struct):
    id: str | None = None
    payload: Raw = Raw(b"null")


def _number(text: str) -> Raw:
    """A float as it is hashed: `1.0` as 1, `1e-7` as 0.0000001, `-0.0` as 0."""
    number = float(text)
    if number.is_integer() and abs(number) < 2**63:
        return Raw(str(int(number)))
    digits = repr(number)
    return Raw(_without_exponent(digits) if "e" in digits else digits)


def _without_exponent(digits: str) -> str:
    mantissa, _, exponent = digits.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if int(exponent) > 0:
        return sign + (whole + fraction).ljust(int(exponent) + 1, "0")
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{whole}{fraction}"


_envelope = msgspec.json.Decoder(_Hashed).decode
_payload = msgspec.json.Decoder(float_hook=_number).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def matches(line: bytes) -> bool:
    """Whether a record's id is the hash of its payload. A record without an id has nothing to match."""
    record = _envelope(line)
    if record.id is None:
        return True
    payload = _payload(record.payload)
    text = _encode(payload)
    if not text.isascii() and not unicodedata.is_normalized("NFC", text.decode()):
        text = _encode(_composed(payload))
    return record.id in (_hash(text), _hash(_SHORT_ESCAPE.sub(_lengthen, text)))


def _hash(text: bytes) -> str:
    return PREFIX + sha256(text).hexdigest()


def _lengthen(escape: re.Match[bytes]) -> bytes:
    return _LONG.get(escape[1], escape[0])


def _composed(value: Any) -> Any:
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return [_composed(item) for item in value]
    if isinstance(value, dict):
        return {unicodedata.normalize("NFC", key): _composed(item) for key, item in value.items()}
    return value


class IdCheck:
    """Verifies the ids of a file: all of them where that was asked for, else only the first."""

    def __init__(self, problems: Problems, *, every: bool) -> None:
        self._problems = problems
        self._every = every
        self._verified = 0
        self._mismatches = 0
        self.wanted = True

    def fine(self, place: int | Place, line: bytes) -> bool:
        """Whether the record may be read. A mismatch is only a warning where nobody asked."""
        if not self.wanted:
            return True
        self._verified += 1
        self.wanted = self._every or self._verified < IDS_VERIFIED
        try:
            if matches(line):
                return True
        except REFUSED:
            pass  # numbers or nesting that no writer can have hashed
        self._mismatches += 1
        report(
            self._problems,
            place,
            line,
            ("id",),
            code="id-mismatch",
            message="the id is not the hash of the payload, so one of them was changed",
            severity="error" if self._every else "warning",
        )
        return not self._every

    def notes(self) -> list[str]:
        if not self._mismatches or self.wanted:
            return []
        return [f"ids of the first {self._verified} records verified"]
