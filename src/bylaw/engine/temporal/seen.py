"""`seen`: results wait until a response of their run had them in its input."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.engine.temporal import tables
from bylaw.engine.temporal.frame import Frame
from bylaw.engine.temporal.letters import result_ids
from bylaw.engine.temporal.tables import EMPTY, Kept, Table
from bylaw.model.events import Response
from bylaw.model.temporal import Window

MOST_UNSEEN = 256
"""results that wait to be seen"""


class Unseen(Struct, frozen=True, array_like=True):
    run: str
    call_id: str | None
    key: tuple[Any, ...]
    kept: Kept


class Awaiting(Struct, frozen=True, array_like=True):
    unseen: tuple[Unseen, ...] = ()
    seen: Table = EMPTY


def await_answer(before: Awaiting, one: Unseen) -> Awaiting:
    if len(before.unseen) < MOST_UNSEEN:
        return Awaiting((*before.unseen, one), before.seen)
    return Awaiting((*before.unseen[1:], one), tables.lose(before.seen, before.unseen[0].kept.clocks))


def answered(before: Awaiting, frame: Frame, response: Response, window: Window | None, trim: tables.Trim) -> Awaiting:
    """A response: what its run's results were, it has seen, unless its request shows that they were not in it."""
    waiting = [one for one in before.unseen if one.run == frame.run]
    if not waiting:
        return before
    ids = result_ids(response)
    table, left = before.seen, tuple(one for one in before.unseen if one.run != frame.run)
    for one in waiting:
        if ids and one.call_id is not None and one.call_id not in ids:
            left = (*left, one)
        else:
            kept = Kept(one.kept.clocks, one.kept.sure, one.kept.deferred, one.kept.place, frame.turn)
            table = tables.remember(table, (one.run, *one.key), kept, trim, window)
    return Awaiting(left, table)
