"""The messages of requests, and the results in them. Requests of one conversation share a list that only grows."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, TypeAlias

Part: TypeAlias = tuple[list[Any], int, int]
"""a list of messages, the position of the first one that is meant, and the position behind the last"""
_lock = threading.Lock()


class MessageList(list[Any]):
    """Messages that requests share, each up to another length.

    INVARIANT: it is only appended to. So it is known where its results are, and no request needs a search of its own.
    """

    __slots__ = ("_places", "_read", "decoded")

    def __init__(self, messages: Any = ()) -> None:
        super().__init__(messages)
        self.decoded = 0
        """how many are values, where the others may still be JSON"""
        self._read = 0
        """how many were searched for results"""
        self._places: dict[str | None, list[int]] = {}
        """the positions of results, by their calls; those of all results for None"""

    def places(self, call_id: str | None, end: int) -> list[int]:
        """Where results of a call are, or of any call, among so many messages and maybe behind these."""
        if self._read < end:
            with _lock:
                while self._read < end:
                    ids = dict.fromkeys(result_ids_in(self[self._read]))
                    for one in (None, *ids) if ids else ():
                        self._places.setdefault(one, []).append(self._read)
                    self._read += 1
        return self._places.get(call_id, [])


class ShownResults:
    """The calls whose results a part of a shared list has."""

    def __init__(self, messages: MessageList, start: int, end: int) -> None:
        self._messages, self._start, self._end = messages, start, end

    def __contains__(self, call_id: object) -> bool:
        return isinstance(call_id, str) and self._has(call_id)

    def __bool__(self) -> bool:
        return self._has(None)

    def _has(self, call_id: str | None) -> bool:
        places = self._messages.places(call_id, self._end)
        at = bisect_left(places, self._end)
        return at > 0 and places[at - 1] >= self._start


def shared_count(one: Part, other: Part) -> int:
    """How many messages both have, if they are parts of one list; 0 if that is not known without comparing them."""
    is_one = one[0] is other[0] and one[1] == other[1]
    return min(one[2], other[2]) - one[1] if is_one else 0


class EqualParts:
    """Whether parts of lists have equal messages. Lists that requests share are compared once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], tuple[int, bool, Part, Part]] = {}
        """for two lists and their starts: how many messages are equal so far, and whether the next ones differ; the
        lists are kept, so that ids stay unique"""

    def __call__(self, one: Part, other: Part) -> bool:
        (left, start, end), (right, begin, _) = one, other
        count = end - start
        if count != other[2] - begin:
            return False
        if shared_count(one, other) == count:
            return True
        if not isinstance(left, MessageList) and not isinstance(right, MessageList):
            return left[start:end] == right[begin : begin + count]
        key = (id(left), start, id(right), begin)
        equal, differs, *_ = self._known.get(key, (0, False))
        while equal < count and not differs:  # no further: later messages may still be JSON
            differs = left[start + equal] != right[begin + equal]
            equal += not differs
        self._known[key] = (equal, differs, one, other)
        return count <= equal


def shown_results(part: Part) -> ShownResults | set[str]:
    """The calls whose results these messages have; it is false if there are none."""
    messages, start, end = part
    if isinstance(messages, MessageList):
        return ShownResults(messages, start, end)
    return {call_id for message in messages[start:end] for call_id in result_ids_in(message)}


def result_ids_in(message: Any) -> Iterator[str]:
    """The calls whose results a message has."""
    if not isinstance(message, dict):
        return
    if isinstance(message.get("tool_call_id"), str):
        yield message["tool_call_id"]
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("tool_use_id"), str):
            yield block["tool_use_id"]
