"""The monitor of a temporal rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from msgspec.structs import replace

from bylaw.engine.matching import compile_names
from bylaw.engine.monitor import (
    NOTHING,
    OK,
    STOPPED_EARLY,
    VACUOUS,
    Conclusion,
    FoundViolation,
    Monitor,
    ScopeEnd,
    Step,
)
from bylaw.engine.temporal.atom_values import AtomReader
from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.frame import START, Clocks, Frame, Position, position_of
from bylaw.engine.temporal.pending import Alarms, OpenTurn, Origin, Pending, Progress, State, dump, load
from bylaw.engine.temporal.resolution import (
    Resolver,
    explain_failure,
    is_settled,
    memory_notes,
    undecided_reason,
    unmet_obligations,
)
from bylaw.engine.temporal.shape import Conjunct, can_skip, parts_of, watches, windows, yesterdays
from bylaw.engine.temporal.truth import may_have_failed
from bylaw.engine.temporal.variables import AtomValues
from bylaw.model.demand import Temporal
from bylaw.model.events import Event, Message, Response, ToolCall, ToolResult
from bylaw.model.temporal import Implies
from bylaw.model.verdict import EventRef, Outcome

UNORDERED = "times do not say whether `{}` was called before or after a result that the rule is about"
_MOST_IDLE = 4096
_MOST_SPEAKERS = 1024
"""sessions whose user has spoken and got no answer yet"""


class TemporalMonitor(Monitor):
    gates_itself = True
    state_type = State

    def __init__(self, demand: Temporal) -> None:
        formula = demand.formula
        self.parts = parts_of(formula, demand.words, demand.message)
        self.builder = builder = Builder(formula)
        self._values = [builder.build(part.body) for part in self.parts]
        self._triggers = [self._trigger(part) for part in self.parts]
        self._atoms = AtomReader(builder.atoms)
        self._resolver = Resolver(self.parts, builder)
        self._in_words = bool(demand.words)
        self._over_turns = demand.over == "turns"
        self._depth = yesterdays(formula)
        self._window = next((w for w in windows(formula) if w.unit == "seconds"), None)
        self._skips = not self._over_turns and can_skip(formula, self.parts)
        finite = not (builder.ahead or self._depth or builder.variables or any(True for _ in windows(formula)))
        only_truths = all(isinstance(slot.initial, bool) for slot in builder.slots)
        self._idle: dict[Any, bool] | None = {} if finite and only_truths else None
        self._once = not all(part.always for part in self.parts)
        self.adds_up = not self._once  # a conjunct that is judged once begins at the first matching turn
        self._always_judged = not all(part.conditional for part in self.parts)
        self.watches = watches(formula, self.parts, demand.over)
        self.initial = State(Pending(alarms=(Alarms(),) * len(builder.ahead)))

    # -- one event ------------------------------------------------------------------------------------------------

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        kind = type(event)
        if state.untimed or kind not in _JUDGED_EVENTS:
            return state, NOTHING
        if kind is Message:
            return self._record_user_message(state, event), NOTHING
        if self._over_turns:
            return self._step_turn(state, event, applies)
        session = event.origin.session
        atom_values = self._atoms.at(event, state.said.get(session, ()) if state.said else ())
        if kind is ToolCall and event.unordered:  # type: ignore[attr-defined]
            call = cast(ToolCall, event)
            if self._needs_order(call, atom_values):
                return replace(state, untimed=UNORDERED.format(call.name)), NOTHING
        if atom_values == self._atoms.all_false and self._can_skip(state, kind, applies):
            return state, NOTHING
        if kind is Response and session in state.said:
            state = replace(state, said=state.said.delete(session))
        if self._idle is not None and applies and state.begun and state.triggered and state.frame is not None:
            return self._step_finite(state, atom_values, event, self._idle)
        return self._judge(state, atom_values, position_of(event), applies)

    def _needs_order(self, call: ToolCall, atom_values: AtomValues) -> bool:
        """Whether it matters if the call came before or after the results that it is unordered with."""
        if not self._skips:
            return True
        takes = [compile_names(results) for results in self.watches.results]
        names = call.unordered
        return atom_values != self._atoms.all_false and any("*" in names or any(map(take, names)) for take in takes)

    def _step_finite(self, state: State, atom_values: AtomValues, event: Event, idle: dict[Any, bool]) -> Step:
        """A formula that remembers only truth values has few states; where atom_values change nothing is soon known."""
        assert state.frame is not None
        key = (atom_values, *state.frame.memory)
        if idle.get(key):
            return state, NOTHING
        after, found = self._judge(state, atom_values, position_of(event), True)
        if key not in idle and len(idle) < _MOST_IDLE:
            assert after.frame is not None
            idle[key] = not found and after.frame.memory == state.frame.memory and after.undecided == state.undecided
        return after, found

    def _can_skip(self, state: State, kind: type[Event], applies: bool) -> bool:
        """Whether a position at which every atom is false changes nothing: no clock, and nothing that begins here."""
        if not self._skips or (self.watches.responses and kind is Response):
            return False
        return state.begun or not applies or not self._once

    def _record_user_message(self, state: State, message: Any) -> State:
        if message.role != "user" or not self._atoms.user_atoms or len(state.said) >= _MOST_SPEAKERS:
            return state
        session = message.origin.session
        user = self._atoms.after_message(message, state.said.get(session, ()))
        return replace(state, said=state.said.set(session, user))

    def _step_turn(self, state: State, event: Event, applies: bool) -> Step:
        open_turn = state.turn.turn if state.turn is not None else None
        if isinstance(event, ToolResult) and state.turn is not None and event.turn == open_turn is not None:
            atom_values = self._atoms.with_result(state.turn.atom_values, event)
            return replace(state, turn=replace(state.turn, atom_values=atom_values)), NOTHING
        if isinstance(event, ToolResult):
            return self._too_late(state, event), NOTHING
        if not isinstance(event, Response):
            return state, NOTHING
        state, found = self._close_turn(state)
        session = event.origin.session
        atom_values = self._atoms.of_turn(event, state.said.get(session, ()))
        at = position_of(event)
        opened = OpenTurn(atom_values, at.turn, at.run, session, at.place(), at.time, applies)
        state = replace(state, turn=opened, said=state.said.delete(session) if session in state.said else state.said)
        if self.watches.results:
            return state, found
        state, more = self._close_turn(state)
        return state, (*found, *more)

    def _too_late(self, state: State, result: ToolResult) -> State:
        """A result of a turn that is already judged. If it could matter, the turn's outcome becomes unknown."""
        if self._atoms.with_result(self._atoms.all_false, result) == self._atoms.all_false:
            return state
        first = state.first_undecided or ("" if result.turn is None else f", the first at turn {result.turn}")
        return replace(state, undecided=state.undecided + 1, first_undecided=first)

    def _close_turn(self, state: State) -> tuple[State, tuple[FoundViolation, ...]]:
        turn = state.turn
        if turn is None or state.untimed:
            return state, NOTHING
        return self._judge(replace(state, turn=None), turn.atom_values, turn.position(), turn.applies)

    def _judge(
        self, state: State, atom_values: AtomValues, at: Position, applies: bool
    ) -> tuple[State, tuple[FoundViolation, ...]]:
        if self._window is not None and at.time is None and atom_values != self._atoms.all_false:
            where = "" if at.turn is None else f" at turn {at.turn}"
            window = "`within`" if self._in_words else f"`[{self._window.text}]`"
            return replace(state, untimed=f"an event{where} carries no time, so {window} cannot be measured"), NOTHING
        frame = self._frame(state, atom_values, at)
        now = Progress(frame, at, state.pending, [], state.triggered, state.undecided, state.first_undecided)
        if now.pending.entries:
            self._resolver.move_on(now)
        if applies:
            self._begin(now, state.begun)
        frame.position = None
        clocks = frame.clocks
        if self._skips and atom_values == self._atoms.all_false:  # a response that is only counted
            clocks = Clocks(clocks.events, clocks.turns, state.clocks.seconds)
        after = State(
            now.pending,
            frame,
            clocks,
            state.begun or applies,
            now.triggered,
            now.undecided,
            now.first_undecided,
            "",
            state.said,
            state.turn,
        )
        return after, tuple(now.found)

    def _frame(self, state: State, atom_values: AtomValues, at: Position) -> Frame:
        old, time = state.clocks, at.time
        seconds = old.seconds if time is None or time < old.seconds else time
        clocks = Clocks(old.events + 1, old.turns + at.is_response, seconds)
        before = None if not self._depth or state.frame is None else _trim_past(state.frame, self._depth)
        frame = Frame(clocks, atom_values, [], before, at.turn, at.run, at)
        slots = self.builder.slots
        if slots:
            remembered = [slot.initial for slot in slots] if state.frame is None else state.frame.memory
            for slot, memory in zip(slots, remembered, strict=True):
                frame.memory.append(slot.update(frame, memory))
        return frame

    def _begin(self, now: Progress, begun: bool) -> None:
        frame, unset = now.frame, self.builder.unset
        for number, (part, value) in enumerate(zip(self.parts, self._values, strict=True)):
            if begun and not part.always:
                continue
            truth = value(frame, unset)
            now.triggered = now.triggered or self._triggers[number](frame)
            if truth is True:
                continue
            at = now.at
            if truth is False:
                message, earlier = explain_failure(part, frame, self.builder)
                now.found.append(FoundViolation(message, at.session, at.turn, (*earlier, at.place())))
            elif truth is None:
                now.doubt(at.turn, 1)
                now.suspect(part)
            else:
                if may_have_failed(True, truth, lambda wait: True):
                    now.suspect(part)
                now.pending = self._resolver.enter(now.pending, number, truth, Origin(at.session, at.turn, at.place()))

    def _trigger(self, part: Conjunct) -> Callable[[Frame], bool]:
        """Whether a position is one that the part has something to say about."""
        body, unset = part.body, self.builder.unset
        if not part.conditional:
            return lambda frame: True
        assert isinstance(body, Implies)
        matches = self.builder.matchers.get(body.left)
        if matches is not None:
            return lambda frame: bool(matches(frame, unset))
        left = self.builder.build(body.left)
        return lambda frame: left(frame, unset) is not False

    # -- the end --------------------------------------------------------------------------------------------------

    def end(self, state: State, ended: ScopeEnd) -> Conclusion:
        found: tuple[FoundViolation, ...] = NOTHING
        if state.turn is not None:
            state, found = self._close_turn(state if ended.complete else self._may_grow(state))
            found = tuple(one for one in found if not one.doubtful)
        notes = memory_notes(state)
        if state.untimed:
            return Conclusion(Outcome.INCONCLUSIVE, reason=state.untimed)
        if not state.begun and ended.turns:
            state = self._begun_unnoticed(state)
        complete = ended.complete
        undecided = state.undecided
        if complete:
            open_found, doubts = unmet_obligations(state, self.parts, self.builder)
            found, undecided = (*found, *open_found), undecided + doubts
        if found:
            return Conclusion(Outcome.VIOLATED, found, notes=notes)
        if undecided or state.pending.unfollowed:
            return Conclusion(Outcome.INCONCLUSIVE, reason=undecided_reason(state, undecided), notes=notes)
        judged = state.triggered or (self._always_judged and (state.begun or ended.turns > 0))
        if complete:
            return Conclusion((OK if judged else VACUOUS).outcome, notes=notes)
        if judged and is_settled(state, self.parts, self.builder):
            return Conclusion(Outcome.OK, notes=notes)
        return Conclusion(Outcome.INCONCLUSIVE, reason=STOPPED_EARLY.reason, notes=notes)

    def _begun_unnoticed(self, state: State) -> State:
        """A conjunct that is judged once began at a position that was skipped because every atom was false there."""
        frame = Frame(START, self._atoms.all_false, [slot.initial for slot in self.builder.slots])
        pending = state.pending
        for number, (part, value) in enumerate(zip(self.parts, self._values, strict=True)):
            truth = True if part.always else value(frame, self.builder.unset)
            if not isinstance(truth, bool | None):
                pending = self._resolver.enter(pending, number, truth, Origin("", None, EventRef("response")))
        return replace(state, pending=pending)

    def _may_grow(self, state: State) -> State:
        """The last turn of a recording that stopped early: results of it may be missing."""
        assert state.turn is not None
        turn, time = state.turn, state.turn.time
        if time is None and turn.atom_values == self._atoms.all_false:
            time = state.clocks.seconds  # it does not matter as far as it is known, so it needs no time either
        atom_values = self._atoms.awaiting_results(turn.atom_values)
        return replace(state, turn=replace(turn, atom_values=atom_values, time=time))

    # -- carrying states elsewhere --------------------------------------------------------------------------------

    def dump(self, state: State, excerpts: bool = True) -> Any:
        return dump(state, excerpts)

    def revive(self, data: Any) -> State:
        state = load(data)
        assert isinstance(state, State)
        return state


_JUDGED_EVENTS = frozenset({ToolCall, ToolResult, Response, Message})


def _trim_past(frame: Frame, depth: int) -> Frame:
    """The frame with no more of its past than `Y` reaches."""
    before = None if depth <= 1 or frame.before is None else _trim_past(frame.before, depth - 1)
    return Frame(frame.clocks, frame.atom_values, frame.memory, before, frame.turn, frame.run)
