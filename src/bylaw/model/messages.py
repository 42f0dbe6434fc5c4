"""Lists of messages that the requests of one conversation share.

Each request repeats the messages of the one before and adds some. A request therefore holds a slice of one growing list
instead of a copy: n turns take memory and time in proportion to n, not to its square.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, TypeAlias

MessageSlice: TypeAlias = tuple[list[Any], int, int]
"""a list of messages, and the start and the end of a slice of it: `messages[start:end]` without the copy"""
_lock = threading.Lock()


class MessageList(list[Any]):
    """The messages of a conversation, which its requests share, with an index of the tool results in them.

    INVARIANT: messages are only appended, so the index stays valid and each message is indexed once.
    """

    __slots__ = ("__weakref__", "_copied", "_indexed", "_places", "decoded")

    def __init__(self, messages: Any = ()) -> None:
        super().__init__(messages)
        self.decoded = 0
        """how many messages at the front are decoded; later ones may still be JSON"""
        self._indexed = 0
        """how many messages at the front are indexed"""
        self._places: dict[str | None, list[int]] = {}
        """the positions of messages with a result, by the id of its call; under None, those of all results"""
        self._copied: tuple[weakref.ref[MessageList], int, int] | None = None
        """the list that the first messages are copied from, the position of the first one there, and their number;
        requests that hold a slice of that list keep it alive"""

    def branch(self, start: int, end: int) -> MessageList:
        """A new list that begins with a slice of this one, for a conversation that goes on in another way."""
        new = MessageList(self[start:end])
        new.decoded = max(0, min(self.decoded, end) - start)
        *_, (messages, start, end) = _lineage((self, start, end), whole=True)
        new._copied = (weakref.ref(messages), start, end - start)  # type: ignore[arg-type]
        return new

    def copied_from(self, start: int, end: int) -> MessageSlice | None:
        """The part of a slice that was copied from another list, as a slice of that list."""
        messages = None if self._copied is None else self._copied[0]()
        if messages is None or self._copied is None or start >= self._copied[2]:
            return None
        _, at, count = self._copied
        return messages, at + start, at + min(end, count)

    def places(self, call_id: str | None, end: int) -> list[int]:
        """The positions of messages with a result of the call, or of any call if it is None, in ascending order.

        Messages before `end` are indexed first. The positions may include later ones.
        """
        if self._indexed < end:
            with _lock:
                while self._indexed < end:
                    ids = dict.fromkeys(result_ids_in(self[self._indexed]))
                    for one in (None, *ids) if ids else ():
                        self._places.setdefault(one, []).append(self._indexed)
                    self._indexed += 1
        return self._places.get(call_id, [])


class ShownResults:
    """The ids of the calls whose results are in a slice of a shared list: a set that is computed only when asked."""

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


def shared_count(one: MessageSlice, other: MessageSlice) -> int:
    """How many messages both are known to begin with, because their lists are the same or branches of the same one.

    Messages are not compared, so both may have more in common.
    """
    if one[0] is other[0]:
        return min(one[2], other[2]) - one[1] if one[1] == other[1] else 0
    ends = {(id(messages), start): end for messages, start, end in _lineage(one)}
    for messages, start, end in _lineage(other):
        if (id(messages), start) in ends:
            return min(end, ends[id(messages), start]) - start
    return 0


def _lineage(shown: MessageSlice, *, whole: bool = False) -> Iterator[MessageSlice]:
    """A slice, and the slices of other lists that its first messages were copied from. `whole`: all its messages."""
    found: MessageSlice | None = shown
    while found is not None:
        yield found
        messages, start, end = found
        found = messages.copied_from(start, end) if isinstance(messages, MessageList) else None
        if whole and found is not None and found[2] - found[1] < end - start:
            return


class SliceComparison:
    """Compares slices of message lists. Two lists that many requests share are compared only once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], tuple[int, bool, MessageSlice, MessageSlice]] = {}
        """by the ids and starts of two lists: how many messages are known equal, and whether the next ones differ.
        The slices are stored too, since the id of a list is unique only while the list is alive."""

    def are_equal(self, one: MessageSlice, other: MessageSlice) -> bool:
        (left, start, end), (right, other_start, other_end) = one, other
        count = end - start
        if count != other_end - other_start:
            return False
        shared = shared_count(one, other)
        if shared == count:
            return True
        if not isinstance(left, MessageList) and not isinstance(right, MessageList):
            return left[start:end] == right[other_start:other_end]
        key = (id(left), start, id(right), other_start)
        equal, differs, *_ = self._known.get(key, (shared, False))
        while equal < count and not differs:  # not beyond the slices: later messages may still be JSON
            differs = left[start + equal] != right[other_start + equal]
            equal += not differs
        self._known[key] = (equal, differs, one, other)
        return count <= equal


def shown_results(shown: MessageSlice) -> ShownResults | set[str]:
    """The ids of the calls whose results are in these messages; false if there are none."""
    messages, start, end = shown
    if isinstance(messages, MessageList):
        return ShownResults(messages, start, end)
    return {call_id for message in messages[start:end] for call_id in result_ids_in(message)}


def result_ids_in(message: Any) -> Iterator[str]:
    """The ids of the calls whose results are in a message."""
    if not isinstance(message, dict):
        return
    if isinstance(message.get("tool_call_id"), str):
        yield message["tool_call_id"]
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("tool_use_id"), str):
            yield block["tool_use_id"]
