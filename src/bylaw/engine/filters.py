"""Monitors that see only some events: the turns that the conditions of `when` match, or the events of one agent.

The conditions are evaluated once a turn, at its response; the calls of that turn use the same answer.

Where the answer is unknown, the monitor is run twice from there: without such turns, and with all of them. What both
agree on is decided. Anything else is inconclusive, and at an attempt it is a doubt.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.conditions import Doubts, add_doubts, compile_conditions, tell_doubts
from bylaw.engine.monitor import (
    NOTHING,
    STOPPED_EARLY,
    VACUOUS,
    Conclusion,
    Monitor,
    ScopeEnd,
    Step,
    mismatch_notes,
)
from bylaw.model.canonical import prepared
from bylaw.model.condition import Clause
from bylaw.model.events import Event, Response
from bylaw.model.verdict import Outcome

RECENT = 64
"""matching turns that are remembered, for calls that are recorded after a later turn"""


class State(Struct, frozen=True, array_like=True):
    inner: Any
    recent: tuple[int | None, ...] = ()
    """the latest turns that matched"""
    matched: int = 0
    mismatches: int = 0
    late: int = 0
    """calls of a turn that is no longer among the recent ones, so it is unknown whether it matched"""
    unsure: tuple[int | None, ...] = ()
    """the latest turns of which it is unknown whether they match"""
    unknown: int = 0
    """how many there were"""
    doubts: tuple[tuple[str, int], ...] = ()
    """why, and in how many turns"""
    differs: bool = False
    """such a turn made a difference, so `taken` counts"""
    taken: Any = None
    """the state if they all matched"""
    broken: bool = False
    """the rule is broken if they all matched"""
    early: int = 0
    """such turns before the first that matched"""


class ConditionMonitor(Monitor):
    gates_itself = True
    state_type = State

    def __init__(self, inner: Monitor, when: tuple[Clause, ...]) -> None:
        self.inner = inner
        self._gate = compile_conditions(when)
        self.initial = State(inner.initial)
        self.watches = replace(inner.watches, responses=True)

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is Response:
            is_open, doubts = self._gate(event)
            if is_open is not False or doubts:
                state = _count_turn(state, event.turn, is_open, doubts)
        else:
            is_open = event.turn in state.recent
            if not is_open and state.unknown and event.turn in state.unsure:
                is_open = None
            elif not is_open and _is_forgotten(state, event):
                state = replace(state, late=state.late + 1)
        if is_open is None or state.differs:
            return self._step_twice(state, event, is_open)
        after, found = self._pass(state.inner, event, is_open)
        if found and state.mismatches:
            found = tuple(replace(one, notes=mismatch_notes(state.mismatches)) for one in found)
        return (state if after is state.inner else _replace_fast(state, after, state.recent, state.matched)), found

    def _pass(self, inner: Any, event: Event, is_open: bool) -> Step:
        if is_open or self.inner.gates_itself:
            return self.inner.step(inner, event, is_open)
        return inner, NOTHING

    def _step_twice(self, state: State, event: Event, is_open: bool | None) -> Step:
        """Without the turns that are unknown, and with all of them."""
        left, found = self._pass(state.inner, event, is_open is True)
        taken, more = self._pass(state.taken if state.differs else state.inner, event, is_open is not False)
        broken = state.broken or any(not one.doubtful for one in more)
        differs = state.differs or broken or bool(more) or taken != left
        after = replace(state, inner=left, differs=differs, taken=taken if differs else None, broken=broken)
        sure = bool(found) and broken and not self._is_open_when_it_began(state)
        notes = mismatch_notes(state.mismatches) if sure else (*_notes(state), *mismatch_notes(state.mismatches))
        violations = found or more
        return after, tuple(replace(one, doubtful=one.doubtful or not sure, notes=notes) for one in violations)

    def _is_open_when_it_began(self, state: State) -> bool:
        """Without and with all such turns are then not all that is possible."""
        return state.early > 1 and not self.inner.adds_up

    def dump(self, state: State, excerpts: bool = True) -> State:
        taken = self.inner.dump(state.taken, excerpts) if state.differs else None
        return replace(state, inner=self.inner.dump(state.inner, excerpts), taken=taken)

    def revive(self, data: Any) -> State:
        state = msgspec.convert(data, prepared(State))
        taken = self.inner.revive(state.taken) if state.differs else None
        return replace(state, inner=self.inner.revive(state.inner), taken=taken)

    def end(self, state: State, ended: ScopeEnd) -> Conclusion:
        notes = mismatch_notes(state.mismatches)
        inner = self._end(state.inner, state.matched, ended)
        if state.late and inner.outcome is not Outcome.VIOLATED:
            many = "1 call was" if state.late == 1 else f"{state.late} calls were"
            reason = f"{many} recorded too long after the turn to tell whether `when` matched"
            return Conclusion(Outcome.INCONCLUSIVE, reason=reason, notes=(*notes, *inner.notes))
        if state.unknown:
            taken = state.taken if state.differs else state.inner
            outcome = self._end(taken, state.matched + state.unknown, ended).outcome
            if state.broken or outcome is not inner.outcome or self._is_open_when_it_began(state):
                return Conclusion(Outcome.INCONCLUSIVE, reason=_notes(state)[0], notes=(*notes, *inner.notes))
            notes = (*_notes(state), *notes)
        return Conclusion(inner.outcome, inner.found, inner.reason, (*notes, *inner.notes))

    def _end(self, inner: Any, turns: int, ended: ScopeEnd) -> Conclusion:
        if not turns:
            return VACUOUS if ended.complete else STOPPED_EARLY
        return self.inner.end(inner, ScopeEnd(turns, ended.complete))


def _count_turn(state: State, turn: int | None, is_open: bool | None, doubts: Doubts) -> State:
    if is_open:
        state = _replace_fast(state, state.inner, (*state.recent[1 - RECENT :], turn), state.matched + 1)
    if is_open is None:
        unsure = (*state.unsure[1 - RECENT :], turn)
        counted = add_doubts(state.doubts, doubts)
        early = state.early + (not state.matched)
        state = replace(state, unsure=unsure, unknown=state.unknown + 1, doubts=counted, early=early)
    mismatches = sum(doubt.mismatch for doubt in doubts)
    return replace(state, mismatches=state.mismatches + mismatches) if mismatches else state


def _replace_fast(state: State, inner: Any, recent: tuple[int | None, ...], matched: int) -> State:
    """Hot path: calls the constructor, since `replace` takes three times as long."""
    return State(
        inner,
        recent,
        matched,
        state.mismatches,
        state.late,
        state.unsure,
        state.unknown,
        state.doubts,
        state.differs,
        state.taken,
        state.broken,
        state.early,
    )


def _is_forgotten(state: State, event: Event) -> bool:
    """Whether the call's turn lies before all that is remembered, while more had matched than that."""
    return _lies_before(state.recent, state.matched, event) or _lies_before(state.unsure, state.unknown, event)


def _lies_before(turns: tuple[int | None, ...], total: int, event: Event) -> bool:
    if total <= len(turns) or event.turn is None:
        return False
    oldest = turns[0]
    return oldest is not None and event.turn < oldest


def _notes(state: State) -> tuple[str, ...]:
    return (tell_doubts("`when` matched", state.doubts),) if state.unknown else ()


# -- rules of one agent ------------------------------------------------------------------------------------------------

# A monitor that sees only the events of that agent and of its sub-agents. A recording may leave out who an event is of.
# What such an event could decide makes the rule inconclusive.

MOST_BELOW = 256
"""sub-agents of sub-agents that are remembered"""


class AgentState(Struct, frozen=True, array_like=True):
    inner: Any
    turns: int = 0
    """of the agent"""
    others: int = 0
    """turns of other agents"""
    nameless: int = 0
    """turns that name no agent"""
    missed: int = 0
    """events that name no agent and that the rule is about"""
    below: tuple[str, ...] = ()
    """sub-agents, whose own sub-agents count too"""


class AgentMonitor(Monitor):
    gates_itself = True
    state_type = AgentState

    def __init__(self, inner: Monitor, agents: tuple[str | None, ...], *, below: bool = True) -> None:
        self.inner = inner
        self._agents = frozenset(agents)
        self._below = below
        """whether the events of sub-agents count too"""
        self._name = next((agent for agent in agents if agent is not None), "")
        self.initial = AgentState(inner.initial)
        self.watches = replace(inner.watches, responses=True)

    def step(self, state: AgentState, event: Event, applies: bool = True) -> Step:
        origin, is_turn = event.origin, type(event) is Response
        is_watched = self.inner.watches.responses or not is_turn
        if origin.agent not in self._agents:
            above = origin.parent_agent
            if not self._below or above is None or not (above in self._agents or above in state.below):
                if origin.agent is not None:
                    return (replace(state, others=state.others + 1) if is_turn else state), NOTHING
                return replace(state, nameless=state.nameless + is_turn, missed=state.missed + is_watched), NOTHING
            if origin.agent is not None and origin.agent not in state.below and len(state.below) < MOST_BELOW:
                state = replace(state, below=(*state.below, origin.agent))
        if is_turn:
            state = replace(state, turns=state.turns + 1)
        if not is_watched:
            return state, NOTHING
        inner, found = self.inner.step(state.inner, event, applies)
        return (state if inner is state.inner else replace(state, inner=inner)), found

    def dump(self, state: AgentState, excerpts: bool = True) -> AgentState:
        return replace(state, inner=self.inner.dump(state.inner, excerpts))

    def revive(self, data: Any) -> AgentState:
        state = msgspec.convert(data, prepared(AgentState))
        return replace(state, inner=self.inner.revive(state.inner))

    def end(self, state: AgentState, ended: ScopeEnd) -> Conclusion:
        if not state.turns:
            inner = VACUOUS if ended.complete else STOPPED_EARLY
            if state.others and not state.nameless:
                return Conclusion(inner.outcome, reason=inner.reason, notes=(f"no turn of the agent `{self._name}`",))
        else:
            inner = self.inner.end(state.inner, ScopeEnd(state.turns, ended.complete))
        if count := state.missed or (state.nameless if not state.turns else 0):
            events = "1 event names" if count == 1 else f"{count} events name"
            reason = f"{events} no agent, and the rule is of the agent `{self._name}`"
            return Conclusion(Outcome.INCONCLUSIVE, reason=reason, notes=inner.notes)
        return inner
