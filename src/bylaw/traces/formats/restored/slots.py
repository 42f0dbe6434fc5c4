"""What a file of another format carries of an event: its line of Bylaw JSONL, and where the rest of it stands."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.bylaw.wire import Header, Line, decode_resolved

EVENTS = "bylaw.events"
"""the slots of a span, as JSON text"""
TRACE = "bylaw.trace"
"""marks all that Bylaw wrote: the version of its lines"""
HEADER = "bylaw.header"
END = "bylaw.end"
"""the last line of a trace: whether it is complete, and what was met while reading it"""


class Slot(Struct, omit_defaults=True, gc=False):
    n: int
    """the line's number: 2 is the first event"""
    line: Raw
    held: dict[str, Any] = {}
    """fields of the line that stand elsewhere, and in which form"""

    def decoded(self) -> Line:
        """The line as far as the slot holds it. Raises what decoders do."""
        line: Line = decode_resolved(self.line)
        return line


decode_slots = msgspec.json.Decoder(list[Slot]).decode
decode_header = msgspec.json.Decoder(Header).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


def raw_json(text: str) -> Raw:
    """Text that is JSON, to be decoded when somebody looks. Raises DecodeError."""
    return _decode_raw(text).copy()
