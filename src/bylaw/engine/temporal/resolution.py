"""How open positions are resolved: by later events, by the end of the scope, or because nothing can change them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bylaw.engine.monitor import Found
from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.explain import explain_unmet, show
from bylaw.engine.temporal.frame import Frame, clock
from bylaw.engine.temporal.pending import Entry, Origin, Pending
from bylaw.engine.temporal.shape import Part, evaluate, variables
from bylaw.engine.temporal.state import Progress, State
from bylaw.engine.temporal.tables import Awaiting, Table
from bylaw.engine.temporal.truth import Residual, Wait, may_have_failed, waits
from bylaw.engine.temporal.wakeup import Waker, has_alarm
from bylaw.model.temporal import Back, Formula, Pair

# -- by the events that follow ----------------------------------------------------------------------------------------


class Resolver:
    """Moves the open entries of a rule past each position."""

    def __init__(self, parts: Sequence[Part], builder: Builder) -> None:
        self._parts, self._builder = parts, builder
        self._wakers = [Waker(i, part, builder) for i, part in enumerate(parts)]
        self._alarmed = [(i, node.window) for i, node in enumerate(builder.ahead) if node.window and has_alarm(node)]

    def enter(self, pending: Pending, part: int, residual: Residual, origins: Entry | Origin) -> Pending:
        pending, is_new = pending.enter(part, residual, origins, self._wakers[part].address(residual))
        return self._set_alarms(pending, pending.tail - 1, waits(residual)) if is_new else pending

    def _set_alarms(self, pending: Pending, number: int, begun: list[Wait]) -> Pending:
        for wait in begun:
            node = self._builder.ahead[wait.node]
            if node.window is not None and has_alarm(node):
                pending = pending.set_alarm(number, wait.node, wait.since + node.window.bound)
        return pending

    def _change(self, pending: Pending, number: int, entry: Entry, residual: Residual) -> Pending:
        """An entry goes on with another residual: only windows that open here need an alarm."""
        waker = self._wakers[entry.part]
        if (entry.part, residual) in pending.numbers:
            pending = pending.leave(number, waker.address(entry.residual))
            return self.enter(pending, entry.part, residual, entry)
        pending = pending.change(number, residual, waker.address(entry.residual), waker.address(residual))
        known = set(waits(entry.residual))
        return self._set_alarms(pending, number, [wait for wait in waits(residual) if wait not in known])

    def move_on(self, now: Progress) -> None:
        for number in sorted(self._woken(now)):
            entry = now.pending.entries.get(number)
            if entry is None:
                continue
            truth = self._builder.move(entry.residual, now.frame)
            if may_have_failed(entry.residual, truth, partial(self._builder.go_on, frame=now.frame)):
                now.suspect(self._parts[entry.part], entry.origins[0].place)
            if truth == entry.residual:
                continue
            if not isinstance(truth, bool | None):
                now.pending = self._change(now.pending, number, entry, truth)
                continue
            now.pending = now.pending.leave(number, self._wakers[entry.part].address(entry.residual))
            if truth is False:
                now.found += self._failed(entry, now)
            elif truth is None:
                now.doubt(entry.origins[0].turn, len(entry.origins) + entry.more)

    def _woken(self, now: Progress) -> set[int]:
        pending, frame = now.pending, now.frame
        woken = set(pending.restless)
        for node, window in self._alarmed:
            pending, late = pending.take_expired(node, clock(frame.clocks, window))
            woken.update(late)
        now.pending = pending
        for waker in self._wakers:
            addresses = waker.woken(frame.atom_values)
            if addresses is None:
                return set(pending.entries)
            for address in addresses:
                woken.update(pending.waiting.get(address, ()))
        return woken

    def _failed(self, entry: Entry, now: Progress) -> list[Found]:
        late = self._lateness(entry.residual, now.frame)
        at, part = now.at, self._parts[entry.part]
        found = [
            Found(explain_unmet(part, origin.place, late), at.session, at.turn, (origin.place, at.place()))
            for origin in entry.origins
        ]
        return [*found, *_unnamed(entry, at.turn)]

    def _lateness(self, residual: Residual, frame: Frame) -> str:
        for wait in waits(residual):
            window = self._builder.ahead[wait.node].window
            if window is not None and (passed := clock(frame.clocks, window) - wait.since) > window.bound:
                return f": {show(passed, window)} have passed, {show(passed - window.bound, window)} too many"
        return ""


def _unnamed(entry: Entry, turn: int | None) -> list[Found]:
    if not entry.more:
        return []
    return [Found(f"{entry.more:,} more positions fail the same way, too many to name each", None, turn)]


# -- by the end of the scope ------------------------------------------------------------------------------------------


def unmet_obligations(state: State, parts: Sequence[Part], builder: Builder) -> tuple[list[Found], int]:
    """Where nothing follows: the positions that fail, and the number of those that cannot be decided."""
    found: list[Found] = []
    doubts = 0
    for number in sorted(state.pending.entries):
        entry = state.pending.entries[number]
        truth = builder.ended(entry.residual)
        if truth is False:
            found += _failed_at_end(entry, parts[entry.part])
        elif truth is None:
            doubts += len(entry.origins) + entry.more
    return found, doubts


def _failed_at_end(entry: Entry, part: Part) -> list[Found]:
    if not part.always:
        unmet = (
            f"{part.words}, and at the end there was none"
            if part.words
            else f"`{part.text}` had not come true at the end"
        )
        return [Found(unmet, entry.origins[0].session or None, None, ())]
    late = " before the end"
    found = [
        Found(explain_unmet(part, origin.place, late), origin.session, origin.turn, (origin.place,))
        for origin in entry.origins
    ]
    return [*found, *_unnamed(entry, None)]


def undecided_reason(state: State, undecided: int) -> str:
    if undecided:
        many = "1 position" if undecided == 1 else f"{undecided:,} positions"
        return f"{many} could not be decided{state.first_undecided}"
    left = state.pending.unfollowed
    was = "1 position was" if left == 1 else f"{left:,} positions were"
    return f"{was} not followed to the end, since too many were open"


def memory_notes(state: State) -> tuple[str, ...]:
    """Remarks about memory that was full."""
    if state.frame is None:
        return ()
    memories = [memory.seen if isinstance(memory, Awaiting) else memory for memory in state.frame.memory]
    tables = [table for table in memories if isinstance(table, Table)]
    lost = {"value": sum(table.evicted for table in tables), "event": sum(table.dropped for table in tables)}
    return tuple(
        f"1 {what} was evicted from memory" if number == 1 else f"{number:,} {what}s were evicted from memory"
        for what, number in lost.items()
        if number
    )


# -- because nothing can change ---------------------------------------------------------------------------------------


def is_settled(state: State, parts: Sequence[Part], builder: Builder) -> bool:
    """Whether no further event can break the rule: then it is ok even on a recording that stopped early."""
    always = [part for part in parts if part.always]
    if state.pending.entries or (len(always) < len(parts) and not state.begun):
        return False
    return all(_settled(part.body, state.frame, builder) is True for part in always)


def _settled(formula: Formula, frame: Frame | None, builder: Builder, back: int = 0) -> bool | None:
    """Its truth at every position that could still come: `O p` once p was true. `back`: the number of `Y` around it."""

    def settled(part: Formula) -> bool | None:
        return evaluate(part, operator)

    def operator(part: Formula) -> bool | None:
        if frame is None or variables(part):
            return None
        match part:
            case Back(op="Y", of=of):
                # the next position is preceded by the last one, and the one before that by this frame's own `before`
                return _settled(of, frame if back == 0 else frame.before, builder, back + 1)
            case Pair(op="S", left=left, right=right) if part in builder.settlers:
                lasts = builder.settlers[part](frame) is True and settled(left) is True
                return True if lasts or settled(right) is True else None
        settle = builder.settlers.get(part)
        return None if settle is None else settle(frame)

    return settled(formula)
