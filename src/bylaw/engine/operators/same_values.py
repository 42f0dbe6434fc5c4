"""`Before` with `same`: every call of `second` has an earlier call of `first` with the same values at some paths.

Values are compared as digests, so that a stored state holds no argument. A call that lacks one of the values has no
other with the same; one whose values cannot be read may have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.matching import compile_calls, describe_calls
from bylaw.engine.monitor import (
    NOTHING,
    STOPPED_EARLY,
    VACUOUS,
    Conclusion,
    FoundViolation,
    Monitor,
    ScopeEnd,
    Step,
    Watches,
    doubt,
    inconclusive_if_unknown,
    ok_if_complete,
    ref,
)
from bylaw.engine.values import ABSENT, UNREADABLE, compile_steps, walk
from bylaw.model.canonical import canonical_json
from bylaw.model.demand import Before
from bylaw.model.events import Event, ToolCall

MOST_VALUES = 10_000
"""values that are remembered; with more, a `second` with other values may have had its `first`"""

NO_VALUE: Final = ""
"""the call lacks one of the values"""


class State(Struct, frozen=True, array_like=True):
    seen: Map[str, bool] = Map()
    """the values of calls of `first`, and whether one of these calls certainly is a `first`"""
    any_values: bool = False
    """a call of `first` whose values are not known"""
    judged: bool = False
    possible: bool = False
    """a call may be a `second` and has its `first`"""
    unclear: int = 0
    """calls of `second` that may break the rule"""


class BeforeSame(Monitor):
    initial = State()
    state_type = State
    gates_itself = True

    def __init__(self, demand: Before) -> None:
        self._is_first, self._is_second = compile_calls(demand.first), compile_calls(demand.second)
        self._key = _compile_key(demand.same)
        values = ", ".join(f"`{'.'.join(part or '*' for part in path)}`" for path in demand.same)
        self._wanted = f"{describe_calls(demand.first)} with the same {values}"
        self.watches = Watches(calls=(demand.first, demand.second))

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall:
            return state, NOTHING
        is_second = self._is_second(event) if applies else False
        is_first = self._is_first(event)
        if is_second is False and is_first is False:
            return state, NOTHING
        key, found = self._key(event), NOTHING
        # a call that is both is judged as `second` first: nothing is earlier than itself
        if is_second is not False:
            state, found = self._second(state, event, key, certain=is_second is True)
        return (state if is_first is False else _after_first(state, key, certain=is_first is True)), found

    def _second(self, state: State, event: ToolCall, key: str | None, certain: bool) -> Step:
        if key is not None and state.seen.get(key):
            return (replace(state, judged=True) if certain else replace(state, possible=True)), NOTHING
        message = f"`{event.name}` was called with no earlier call of {self._wanted}"
        found = FoundViolation(message, event.origin.session, event.turn, (ref(event),))
        if key is None:
            has_none = not state.seen and not state.any_values
        else:
            has_none = key == NO_VALUE or (key not in state.seen and not state.any_values)
        if certain and has_none:
            return replace(state, judged=True), (found,)
        return replace(state, unclear=state.unclear + 1), (doubt(found),)

    def end(self, state: State, ended: ScopeEnd) -> Conclusion:
        if state.unclear or not ended.complete:
            return inconclusive_if_unknown(state.unclear, STOPPED_EARLY)
        return ok_if_complete(ended) if state.judged else inconclusive_if_unknown(int(state.possible), VACUOUS)

    def dump(self, state: State, excerpts: bool = True) -> Any:
        return [dict(state.seen), state.any_values, state.judged, state.possible, state.unclear]

    def revive(self, data: Any) -> State:
        seen, *rest = data
        return State(Map(seen), *rest)


def _after_first(state: State, key: str | None, certain: bool) -> State:
    if key is None:
        return replace(state, any_values=True)
    if key == NO_VALUE or state.seen.get(key):
        return state
    if key not in state.seen and len(state.seen) >= MOST_VALUES:
        return replace(state, any_values=True)
    return replace(state, seen=state.seen.set(key, certain))


def _compile_key(paths: tuple[tuple[str | None, ...], ...]) -> Callable[[ToolCall], str | None]:
    """call → a digest of its values, NO_VALUE, or None where one of them cannot be read"""
    compiled = [compile_steps(path) for path in paths]

    def key(call: ToolCall) -> str | None:
        if not isinstance(call.arguments, dict):
            return None
        values = [walk(call.arguments, steps) for steps in compiled]
        if any(value is ABSENT for value in values):
            return NO_VALUE
        if any(value is UNREADABLE or value != value for value in values):
            return None
        return hashlib.sha256(canonical_json(values)).hexdigest()[:32]

    return key
