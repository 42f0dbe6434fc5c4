"""What the end of a scope finds: what is still owed, what can no longer be told, what was lost on the way."""

from __future__ import annotations

from collections.abc import Sequence

from bylaw.engine.monitor import Found
from bylaw.engine.temporal.book import Entry
from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.explain import why_later
from bylaw.engine.temporal.seen import Awaiting
from bylaw.engine.temporal.settled import settled
from bylaw.engine.temporal.shape import Part
from bylaw.engine.temporal.state import State
from bylaw.engine.temporal.tables import Table
from bylaw.engine.temporal.waiting import more


def what_is_owed(state: State, parts: Sequence[Part], builder: Builder) -> tuple[list[Found], int]:
    """Where nothing follows: the positions that fail, and how many nobody can tell."""
    found: list[Found] = []
    doubts = 0
    for number in sorted(state.book.entries):
        entry = state.book.entries[number]
        truth = builder.ended(entry.residual)
        if truth is False:
            found += _failed(entry, parts[entry.part])
        elif truth is None:
            doubts += len(entry.origins) + entry.more
    return found, doubts


def _failed(entry: Entry, part: Part) -> list[Found]:
    if not part.always:
        message = f"`{part.text}` had not come true at the end"
        return [Found(message, entry.origins[0].session or None, None, ())]
    late = " before the end"
    found = [
        Found(why_later(part.body, origin.place, late), origin.session, origin.turn, (origin.place,))
        for origin in entry.origins
    ]
    return [*found, *more(entry, None)]


def is_settled(state: State, parts: Sequence[Part], builder: Builder) -> bool:
    """Whether nothing that could still come can break the rule."""
    always = [part for part in parts if part.always]
    if state.book.entries or (len(always) < len(parts) and not state.begun):
        return False
    return all(settled(part.body, state.frame, builder) is True for part in always)


def why_undecided(state: State, undecided: int) -> str:
    if undecided:
        many = "1 position" if undecided == 1 else f"{undecided:,} positions"
        return f"{many} could not be decided{state.first_undecided}"
    left = state.book.unfollowed
    was = "1 position was" if left == 1 else f"{left:,} positions were"
    return f"{was} not followed to the end, since too many were open"


def what_was_lost(state: State) -> tuple[str, ...]:
    """Remarks about memory that was full."""
    if state.frame is None:
        return ()
    kept = [memory.seen if isinstance(memory, Awaiting) else memory for memory in state.frame.kept]
    held = [table for table in kept if isinstance(table, Table)]
    lost = {"value": sum(table.evicted for table in held), "event": sum(table.dropped for table in held)}
    return tuple(
        f"1 {what} was evicted from memory" if number == 1 else f"{number:,} {what}s were evicted from memory"
        for what, number in lost.items()
        if number
    )
