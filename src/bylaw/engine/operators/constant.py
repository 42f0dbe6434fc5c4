"""`Constant`: every value observed at a path equals the first one observed. Absent and null are not observations.

A value that was not recorded may differ from the others.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.engine.conditions import compile_paths
from bylaw.engine.evidence import as_json, bare, ref, shorten
from bylaw.engine.monitor import (
    NOTHING,
    VACUOUS,
    Conclusion,
    Ended,
    Found,
    Monitor,
    Step,
    Watches,
    count_turns,
    ok_if_complete,
)
from bylaw.engine.values import UNRECORDED
from bylaw.model.condition import Path
from bylaw.model.events import Event, Response
from bylaw.model.values import json_equal
from bylaw.model.verdict import EventRef, Outcome


class Observed(Struct, frozen=True, array_like=True):
    value: Any = None
    """the first value; None: there was none yet"""
    where: EventRef | None = None
    blind: int = 0
    """turns with a value that was not recorded"""


class Constant(Monitor):
    """State: the first observation, and how many are lacking."""

    initial: Observed | None = None
    state_type = Observed | None
    watches = Watches(responses=True)

    def __init__(self, path: Path) -> None:
        self._path = path.text
        self._read = compile_paths(path)

    def step(self, state: Observed | None, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        first = None if state is None else state.value
        lacks = False
        for value in self._read(event):
            if value is None or value is first:
                continue
            if value is UNRECORDED:
                lacks = True
            elif first is None:
                first, state = value, Observed(value, ref(event, self._says(value)), state.blind if state else 0)
            elif not json_equal(value, first):
                assert state is not None
                return state, (self._changed(state, value, event),)
        if lacks:
            known = state or Observed()
            state = Observed(known.value, known.where, known.blind + 1)
        return state, NOTHING

    def _says(self, value: Any) -> str:
        return shorten(f"{self._path} = {as_json(value)}")

    def _changed(self, first: Observed, value: Any, event: Response) -> Found:
        message = f"`{self._path}` changed from {shorten(as_json(first.value), 60)} to {shorten(as_json(value), 60)}"
        assert first.where is not None
        evidence = (first.where, ref(event, self._says(value)))
        return Found(message, event.origin.session, event.turn, evidence)

    def dump(self, state: Observed | None, excerpts: bool = True) -> Observed | None:
        if excerpts or state is None or state.where is None:
            return state
        return Observed(state.value, bare(state.where), state.blind)

    def end(self, state: Observed | None, ended: Ended) -> Conclusion:
        if state is not None and state.blind:
            why = f"`{self._path}` was not recorded in {count_turns(state.blind)}"
            return Conclusion(Outcome.INCONCLUSIVE, reason=why)
        return ok_if_complete(ended) if state is not None or not ended.complete else VACUOUS
