"""Giant samples: a folder of the archive for each, with its events, messages and attachments in numbered pieces.

`samples/<id>_epoch_<n>/sample.json` holds the rest of the sample, `events/1000.json` beside it the events from 1000 on.
Attachments are named by their number. Pieces may come in any order; a sample is whole once the last of those that the
archive lists has come. INVARIANT: bounded, however many samples are open at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from bylaw.traces.formats.reader import Record, a_type
from bylaw.traces.records.place import Place

_PIECE = re.compile(r"(samples/.+_epoch_\d+)/(?:(sample)|(events|messages|attachments)/(\d{1,12}))\.json")
_OTHER = re.compile(r"samples/.+_epoch_\d+/(?:metadata|skeleton|events/(?:stats|uuids)|calls/\d+)\.json")
"""what no rule looks at: `calls` are the providers' own requests"""
MOST_HELD = 1 << 30
"""bytes of pieces that wait for the rest of their samples"""
_UNUSED = ("call", "traceback", "traceback_ansi")


class _Open(Struct, eq=False):
    """A sample that is not whole yet."""

    pieces: dict[tuple[str, int], list[Any]] = {}
    rest: dict[str, Any] | None = None
    size: int = 0


class Chunks:
    def __init__(self, names: Iterable[str]) -> None:
        self._left = Counter(match[1] for name in names if (match := _PIECE.fullmatch(name)))
        self._open: dict[str, _Open] = {}
        self._held = 0

    def is_piece(self, name: str) -> bool:
        return bool(_PIECE.fullmatch(name) or _OTHER.fullmatch(name))

    def take(self, record: Record) -> tuple[Record, dict[str, Any]] | None:
        """The sample that this piece completes."""
        match = _PIECE.fullmatch(record.item)
        if match is None:
            return None
        sample, rest, kind, start = match.groups()
        opened = self._open.setdefault(sample, _Open())
        self._left[sample] -= 1
        if self._fits(record, dict if rest else list):
            opened.size += len(record.raw)
            self._held += len(record.raw)
            if rest:
                opened.rest = record.value
            else:
                opened.pieces[kind, int(start)] = list(map(_lean, record.value)) if kind == "events" else record.value
        return self._whole(sample, record) if self._left[sample] <= 0 else None

    def _fits(self, record: Record, kind: type) -> bool:
        if not isinstance(record.value, kind):
            wanted = "an object" if kind is dict else "a list"
            record.bad("wrong-type", f"this piece of a sample must be {wanted}, not {a_type(record.value)}")
            return False
        if self._held + len(record.raw) > MOST_HELD:
            record.bad("too-long", f"samples that are not whole yet are longer than {MOST_HELD >> 20} MiB")
            return False
        return True

    def rest(self, record: Record) -> list[tuple[Record, dict[str, Any]]]:
        """Samples of which some piece could not be read, as far as they go."""
        return [self._whole(sample, record) for sample in list(self._open)]

    def _whole(self, sample: str, record: Record) -> tuple[Record, dict[str, Any]]:
        opened = self._open.pop(sample)
        self._held -= opened.size
        numbered = {
            kind: {start + at: item for start, items in _sorted(opened, kind) for at, item in enumerate(items)}
            for kind in ("messages", "attachments")
        }
        value = {
            **(opened.rest or {}),
            "events": [event for _, events in _sorted(opened, "events") for event in events],
            "events_data": {"messages": numbered["messages"]},
            "attachments": {str(number): text for number, text in numbered["attachments"].items()},
        }
        return Record(value, record.raw, Place(1, 1, sample), record.problems), value


def _sorted(opened: _Open, kind: str) -> list[tuple[int, list[Any]]]:
    return sorted((start, items) for (of, start), items in opened.pieces.items() if of == kind)


def _lean(event: Any) -> Any:
    """An event without what providers were sent and sent back, which it tells in other words too."""
    if not isinstance(event, dict) or event.get("event") != "model":
        return event
    return {key: value for key, value in event.items() if key not in _UNUSED}
