"""A line, typed, with nothing decoded that nobody looks at.

Types are checked by the decoder. What it refuses may still be a line, for a field of the wrong type counts as absent:
such lines, and those that are kept as they stand, are decoded as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.chat.message import text_field
from bylaw.traces.formats.reader import UNREAD, Record, decode
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Problems

SPOKEN = ("user", "assistant")
KEPT = ("summary", "system", "result")
"""lines of these kinds become annotations; any other kind is the program's own and says nothing of the agent"""


class Line(Struct, gc=False):
    type: str | None = None
    uuid: str | None = None
    sessionId: str | None = None
    session_id: str | None = None
    isSidechain: bool | None = None
    agentId: str | None = None
    parent_tool_use_id: str | None = None
    requestId: str | None = None
    timestamp: Any = None
    message: Any = None
    toolUseResult: Raw = Raw()

    @property
    def at(self) -> str | None:
        return self.timestamp if type(self.timestamp) is str else None


_TEXTS = ("type", "uuid", "sessionId", "session_id", "agentId", "parent_tool_use_id", "requestId")
_decode_line = msgspec.json.Decoder(Line).decode


def lines_of(block: Block, problems: Problems) -> Iterator[Record]:
    """The lines of a block that can be decoded, each a Line or, for `line_of`, a whole value."""
    for raw, place in block:
        try:
            value: Any = _decode_line(raw)
            if value.type in KEPT:
                value = decode(place, raw, problems)
        except REFUSED:
            value = decode(place, raw, problems)
        if value is not UNREAD:
            yield Record(value, raw, place, problems)


def line_of(value: Any) -> Line:
    if type(value) is Line:
        return value
    if not isinstance(value, dict):
        return Line()
    return Line(
        **{key: text_field(value, key) for key in _TEXTS},
        isSidechain=bool(value.get("isSidechain")),
        timestamp=value.get("timestamp"),
        message=value.get("message"),
        toolUseResult=Raw(msgspec.json.encode(value.get("toolUseResult"))),
    )
