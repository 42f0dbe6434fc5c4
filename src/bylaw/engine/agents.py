"""Rules of one agent: a monitor that sees only the events of that agent and of its sub-agents.

A recording may leave out who an event is of. What such an event could decide makes the rule inconclusive.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.monitor import NOTHING, STOPPED_EARLY, VACUOUS, Conclusion, Ended, Monitor, Step
from bylaw.model.events import Event, Response
from bylaw.model.verdict import Outcome

MOST_BELOW = 256
"""sub-agents of sub-agents that are remembered"""


class State(Struct, frozen=True, array_like=True):
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


class OfAgents(Monitor):
    gates_itself = True
    state_type = State

    def __init__(self, inner: Monitor, agents: tuple[str | None, ...], *, below: bool = True) -> None:
        self.inner = inner
        self._agents = frozenset(agents)
        self._below = below
        """whether the events of sub-agents count too"""
        self._name = next((agent for agent in agents if agent is not None), "")
        self.initial = State(inner.initial)
        self.watches = replace(inner.watches, responses=True)

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        origin, is_turn = event.origin, type(event) is Response
        is_watched = self.inner.watches.responses or not is_turn
        if origin.agent not in self._agents:
            above = origin.parent_agent
            if not self._below or above is None or not (above in self._agents or above in state.below):
                return self._without(state, origin.agent, is_turn, is_watched), NOTHING
            if origin.agent is not None and origin.agent not in state.below and len(state.below) < MOST_BELOW:
                state = replace(state, below=(*state.below, origin.agent))
        if is_turn:
            state = replace(state, turns=state.turns + 1)
        if not is_watched:
            return state, NOTHING
        inner, found = self.inner.step(state.inner, event, applies)
        return (state if inner is state.inner else replace(state, inner=inner)), found

    def _without(self, state: State, agent: str | None, is_turn: bool, is_watched: bool) -> State:
        if agent is not None:
            return replace(state, others=state.others + 1) if is_turn else state
        return replace(state, nameless=state.nameless + is_turn, missed=state.missed + is_watched)

    def dump(self, state: State, excerpts: bool = True) -> State:
        return replace(state, inner=self.inner.dump(state.inner, excerpts))

    def revive(self, data: Any) -> State:
        state = msgspec.convert(data, State)
        return replace(state, inner=self.inner.revive(state.inner))

    def end(self, state: State, ended: Ended) -> Conclusion:
        if not state.turns:
            inner = VACUOUS if ended.complete else STOPPED_EARLY
            if state.others and not state.nameless:
                return Conclusion(inner.outcome, reason=inner.reason, notes=(f"no turn of the agent `{self._name}`",))
        else:
            inner = self.inner.end(state.inner, Ended(state.turns, ended.complete))
        unclear = state.missed or (state.nameless and not state.turns)
        if unclear:
            count = state.missed or state.nameless
            events = "1 event names" if count == 1 else f"{count} events name"
            reason = f"{events} no agent, and the rule is of the agent `{self._name}`"
            return Conclusion(Outcome.INCONCLUSIVE, reason=reason, notes=inner.notes)
        return inner
