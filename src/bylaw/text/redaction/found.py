"""What was found in a text, and the text without it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LONE = re.compile("[\ud800-\udfff]")


class Found(NamedTuple):
    kind: str
    start: int
    end: int


def marker(kind: str) -> str:
    return f"[redacted: {kind}]"


def searchable(text: str) -> str:
    """A text of the same length that RE2 takes: halves of characters, which no encoding has, are others."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def replaced(text: str, found: Iterable[Found]) -> str:
    """In one pass, whatever overlaps."""
    parts, at = [], 0
    for kind, start, end in _joined(found):
        parts += [text[at:start], marker(kind)]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def _joined(found: Iterable[Found]) -> Iterator[Found]:
    """Findings that overlap as one, of the kind that begins first; else a piece of one would stay behind."""
    ordered = iter(sorted(found, key=lambda one: (one.start, -one.end)))
    first = next(ordered, None)
    if first is None:
        return
    kind, start, end = first
    for one in ordered:
        if one.start < end:
            end = max(end, one.end)
            continue
        yield Found(kind, start, end)
        kind, start, end = one
    yield Found(kind, start, end)
