"""A quick first look at a whole file: by what are its sessions told apart?

In order of trust: ids; two or more markers; history. Only fields that decide this are decoded, and only where a stretch
of the file can hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from bylaw.traces.records.jsontext import REFUSED

IDS_WITHIN = 4 << 20
"""bytes in which the first session id is looked for. One that comes later counts from where it stands."""


UNNAMED = "unnamed"
"""the session of turns before the first record that names one"""


class SessionsBy(Enum):
    IDS = "ids"
    MARKERS = "markers"
    HISTORY = "history"
    NOTHING = "nothing"
    """no request carries earlier messages, so nothing tells sessions apart"""


class Survey(Struct, frozen=True):
    sessions_by: SessionsBy
    first_session: str | None = None
    """the first session id of the file, where there are ids; UNNAMED where a turn comes before it"""


class Seen(Struct, frozen=True, gc=False):
    """What one record shows."""

    session: str | None = None
    is_marker: bool = False
    carries_history: bool = False


NOTHING_SEEN = Seen()
Look: TypeAlias = Callable[[bytes], Seen]
"""a format's own way to look at a record; may raise what the decoder raises"""


class Hints(Struct, frozen=True):
    """Bytes without which no line can hold the thing. Looking for them is quicker than decoding."""

    session: bytes
    marker: bytes
    request: bytes
    response: bytes


def survey(runs: Iterable[bytes], look: Look, hints: Hints, split: Callable[[bytes], Iterable[bytes]]) -> Survey:
    """`runs` are stretches of the file that hold whole records, `split` divides one."""
    markers = seen = 0
    history = answered = False
    for run in runs:
        early = seen < IDS_WITHIN
        seen += len(run)
        wanted = (not history and hints.request in run) or hints.marker in run or (early and hints.session in run)
        answered = answered or (not wanted and hints.response in run)
        for raw in split(run) if wanted else ():
            try:
                found = look(raw)
            except REFUSED:
                found = NOTHING_SEEN  # told when the file is read
            if found.session is not None and early:
                return Survey(SessionsBy.IDS, UNNAMED if answered else found.session)
            answered = answered or hints.response in raw
            markers += found.is_marker
            history = history or found.carries_history
    if markers > 1:
        return Survey(SessionsBy.MARKERS)
    return Survey(SessionsBy.HISTORY if history else SessionsBy.NOTHING)
