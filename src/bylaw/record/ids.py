"""The ids of calls, where they hold something that must not be written: two calls stay two, and results find theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

_SIZE = 4
"""bytes of a digest: enough to tell the calls of a session apart, too few to tell which card or number it was"""
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
"""digits would look like a number to whoever searches for those"""


def hide_ids(line: dict[str, Any], redact: Callable[[Any], Any]) -> None:
    """In place: an id that would be redacted becomes one that says nothing, the same wherever it stands."""
    for holder, key in _places(line):
        found = holder.get(key)
        if isinstance(found, str) and redact(found) != found:
            digest = blake2b(found.encode(), digest_size=_SIZE).hexdigest()
            holder[key] = f"redacted_{digest.translate(_LETTERS)}"


def _places(line: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    yield line, "call_id"
    yield from _in_blocks(line.get("content"))
    for message in _objects(line.get("messages")):
        yield message, "tool_call_id"
        for call in _objects(message.get("tool_calls")):
            yield call, "id"
        yield from _in_blocks([message])
        yield from _in_blocks(message.get("content"))


def _in_blocks(blocks: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Not what stands deeper: that is a tool's own business, and its ids are no calls'."""
    for block in _objects(blocks):
        yield block, "call_id"
        yield block, "tool_use_id"
        if "name" in block:
            yield block, "id"


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    return (one for one in values if isinstance(one, dict)) if isinstance(values, list) else iter(())
