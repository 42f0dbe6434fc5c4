"""What each agent's latest request showed: the next one is written only from where it differs.

A conversation of n turns holds its first message n times. Written as references to earlier lines, it is stored once.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bylaw.model.events import Deferred, Origin, Request
from bylaw.traces.assembly.conversation import Prefix
from bylaw.traces.formats.bylaw.lines import MOST_FOLLOWED, Pieces, RequestLine
from bylaw.traces.records.jsontext import REFUSED, decode_list

_split = msgspec.json.Decoder(list[Raw]).decode


class _Shown(Struct, eq=False):
    """The messages of a request that was written, by their hashes, or as a part of a list that only grows."""

    number: int
    """its line …"""
    order: int
    """… and how many requests were written before it"""
    keys: list[int] = []
    grows: list[Any] | None = None
    start: int = 0
    end: int = 0
    tools: int | None = None
    """the hash of its tools"""


class Histories:
    """INVARIANT: bounded. A line refers at most MOST_FOLLOWED requests back, which is how many a reader keeps."""

    def __init__(self) -> None:
        self._latest: dict[Origin, _Shown] = {}
        self._written = 0

    def shorten(self, line: RequestLine, request: Request, number: int) -> None:
        """Write the messages and tools of a request as references, as far as an earlier line has them."""
        self._written += 1
        before = self._latest.pop(request.origin, None)
        if before is not None and self._written - before.order >= MOST_FOLLOWED:
            before = None
        shown = _Shown(number, self._written)
        self._shorten_messages(line, request.held_messages, shown, before)
        if line.tools is not UNSET:
            shown.tools = hash(bytes(line.tools))
            if before is not None and before.tools == shown.tools:
                line.tools, line.tools_of = UNSET, before.number
        self._latest[request.origin] = shown
        if len(self._latest) > MOST_FOLLOWED:
            del self._latest[next(iter(self._latest))]

    def _shorten_messages(
        self, line: RequestLine, held: list[Any] | Deferred | None, shown: _Shown, before: _Shown | None
    ) -> None:
        if type(held) is Prefix:
            shown.grows, shown.start, shown.end = held.held
            shared = _shared_part(shown, before)
            if before is not None and shared:
                line.follows = (before.number, shared)
                line.messages = Raw(msgspec.json.encode(shown.grows[shown.start + shared : shown.end]))
                return
            line.messages = Raw(msgspec.json.encode(held.get()))
            return
        parts = _parts(held)
        if parts is None:
            line.messages = _whole(held)
            return
        shown.keys = [hash(part) for part in parts]
        count = 0
        if before is not None:
            for key, known in zip(shown.keys, before.keys, strict=False):
                if key != known:
                    break
                count += 1
            if count:
                line.follows = (before.number, count)
        line.messages = Raw(b"[" + b",".join(parts[count:]) + b"]")


def _shared_part(shown: _Shown, before: _Shown | None) -> int:
    """How many messages both requests show, if they are parts of one list."""
    if before is None or before.grows is not shown.grows or before.start != shown.start:
        return 0
    return min(before.end, shown.end) - shown.start


def _parts(held: list[Any] | Deferred | None) -> list[bytes] | None:
    """The JSON of each message; None if they are not a list."""
    if isinstance(held, Deferred) and held.decode is decode_list and isinstance(held.held, Raw):
        raw = bytes(held.held)
        if b"\n" not in raw:
            try:
                return [bytes(part) for part in _split(raw)]
            except REFUSED:
                return None
    if type(held) is Pieces:
        return held.parts()
    found = _undeferred(held)
    return [msgspec.json.encode(one) for one in found] if isinstance(found, list) else None


def _whole(held: list[Any] | Deferred | None) -> Raw | UnsetType:
    found = _undeferred(held)
    return UNSET if found is None else Raw(msgspec.json.encode(found))


def _undeferred(value: list[Any] | Deferred | None) -> Any:
    """Messages. If they are not decoded yet, the decoded form is not stored in the event."""
    if isinstance(value, Deferred) and value.decode is not None:
        return value.decode() if value.held is UNSET else value.decode(value.held)
    return value.get() if isinstance(value, Deferred) else value
