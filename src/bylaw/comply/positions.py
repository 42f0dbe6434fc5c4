"""Which element of the list that was given an event comes from.

A list of events or messages is indexed by its elements, a file with one record a line by its lines, and anything else
by the trace's own events, as `load_trace` gives them.
"""

from __future__ import annotations

import re

from bylaw.model.events import Event
from bylaw.model.source import Locator

_BY_LINE = frozenset(("events", "openai", "anthropic"))
_ELEMENT = re.compile(r"\[(\d+)\](?:[^\[\]]*)$")


def element_of(source: Locator | None, format: str | None) -> int | None:
    """The index in the list that the trace was read from, where it was read from one."""
    if source is None or format not in (*_BY_LINE, "tau"):
        return None
    if source.item is not None:
        found = _ELEMENT.search(source.item)
        return int(found[1]) if found else None
    return source.line - 1 if source.line is not None and format in _BY_LINE else None


def index_of(event: Event, position: int, format: str | None) -> int:
    element = element_of(event.source, format)
    return position if element is None else element
