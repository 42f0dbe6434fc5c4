"""What a guard remembers of one session.

Each policy has two evaluations of its own. The one about attempts moves on with every attempt. The one about calls
moves on when a call is allowed: that is the reservation. Until the call is settled, the evaluation before it is kept,
so that a call which never ran can be taken out again by going through what happened since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.engine.evaluation import Evaluation
from bylaw.jobs.guard.policy import CompiledPolicy
from bylaw.model.decision import Attempt
from bylaw.model.events import Event, Origin, ToolCall, ToolResult

MOST_UNSETTLED = 256
"""calls and results that are kept for a release; beyond that the oldest call counts as made"""
MOST_OPEN = 1024
"""calls whose result can still be linked"""
MOST_OTHERS = 32
"""policies that are not ours whose memory is kept"""
MOST_DENIED = 256
"""denied calls that are counted apart"""


class Logged(Struct):
    """Something that happened since the oldest reservation that is not settled."""

    event: Event
    settled: bool = True


class PolicyState:
    """One policy in one session."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self.attempts = Evaluation(policy.attempts)
        self.calls = Evaluation(policy.calls)
        self.base: Evaluation | None = None
        """before the oldest reservation that is not settled; None where all are"""
        self.log: list[Logged] = []

    def reserve(self, call: ToolCall) -> None:
        if not self.policy.calls.rules:
            return
        if self.base is None:
            self.base = self.calls.fork()
        self.log.append(Logged(call, settled=False))
        self.calls.step(call)
        if len(self.log) > MOST_UNSETTLED:
            self.log[0].settled = True
            self._advance()

    def tell(self, event: Event) -> Sequence[Any]:
        """Something that happened for certain."""
        if self.base is not None:
            self.log.append(Logged(event))
        return self.calls.step(event)

    def settle(self, call_id: str | None) -> None:
        """The call was made; None: every call so far was."""
        for logged in self.log:
            if isinstance(logged.event, ToolCall) and call_id in (None, logged.event.call_id):
                logged.settled = True
        self._advance()

    def release(self, call_id: str) -> bool:
        """The call was never made: as if it had not been allowed."""
        kept = [one for one in self.log if one.settled or getattr(one.event, "call_id", None) != call_id]
        if len(kept) == len(self.log) or self.base is None:
            return False
        self.log, self.calls = kept, self.base.fork()
        for logged in self.log:
            self.calls.step(logged.event)
        self._advance()
        return True

    def _advance(self) -> None:
        """Move the base past everything that is settled."""
        done = next((i for i, one in enumerate(self.log) if not one.settled), len(self.log))
        if done == len(self.log):
            self.base, self.log = None, []
            return
        assert self.base is not None
        for logged in self.log[:done]:
            self.base.step(logged.event)
        del self.log[:done]


class SessionState:
    """One session, as it lives in memory between a load and a store."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.policies: dict[str, PolicyState] = {}
        """by policy hash"""
        self.fed: frozenset[str] = frozenset()
        self.runs: dict[str, tuple[str | None, str | None]] = {}
        """run → its agent and its parent run"""
        self.denied: dict[str, int] = {}
        """action hash → how often it was denied"""
        self.open: dict[str, ToolCall] = {}
        self.turn: int | None = None
        self.attempts = 0
        self.above: dict[str, tuple[str, ...]] = {}
        """agent → those above it, as its latest attempt said"""
        self.others: dict[str, _PolicyData] = {}
        """what policies of other guards remember, or earlier ones of this; never read, always kept"""
        self.afresh = False
        """whether a policy began to remember after others had"""

    def of(self, policy: CompiledPolicy) -> PolicyState:
        state = self.policies.get(policy.hash)
        if state is None:
            state = self.policies[policy.hash] = PolicyState(policy)
            self.afresh = self.afresh or bool(self.others)
        return state

    def met(self, attempt: Attempt) -> None:
        """Who an attempt comes from: what its runs and results will name only in part."""
        if attempt.agent is None:
            return
        if attempt.run is not None and attempt.run not in self.runs:
            self.runs[attempt.run] = (attempt.agent, attempt.parent_run)
        if attempt.ancestors and self.above.get(attempt.agent) != attempt.ancestors:
            self.above[attempt.agent] = tuple(attempt.ancestors)

    def opened(self, call: ToolCall) -> None:
        self.open[call.call_id] = call
        if len(self.open) > MOST_OPEN:
            del self.open[next(iter(self.open))]

    def deny(self, action: str) -> int:
        """How often this action was denied before."""
        before = self.denied.pop(action, 0)
        self.denied[action] = before + 1
        if len(self.denied) > MOST_DENIED:
            del self.denied[next(iter(self.denied))]
        return before


# -- written down -----------------------------------------------------------------------------------------------------


_NOTHING = Raw(b"null")


class _PolicyData(Struct, array_like=True):
    attempts: Raw
    calls: Raw
    base: Raw = _NOTHING  # msgspec reads no `Raw | None`
    log: list[tuple[list[Any], bool]] = []


class _Data(Struct):
    policies: dict[str, _PolicyData] = {}
    fed: list[str] = []
    runs: dict[str, tuple[str | None, str | None]] = {}
    denied: dict[str, int] = {}
    open: list[list[Any]] = []
    above: dict[str, tuple[str, ...]] = {}
    turn: int | None = None
    attempts: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Data).decode


def dump(state: SessionState) -> bytes:
    return _encode(
        _Data(
            policies=state.others | {key: _dump_policy(policy) for key, policy in state.policies.items()},
            fed=sorted(state.fed),
            runs=state.runs,
            denied=state.denied,
            above=state.above,
            open=[_event(call) for call in state.open.values()],
            turn=state.turn,
            attempts=state.attempts,
        )
    )


def _dump_policy(state: PolicyState) -> _PolicyData:
    return _PolicyData(
        Raw(state.attempts.snapshot()),
        Raw(state.calls.snapshot()),
        _NOTHING if state.base is None else Raw(state.base.snapshot()),
        [(_event(one.event), one.settled) for one in state.log],
    )


def load(key: str, data: bytes, policies: Sequence[CompiledPolicy]) -> SessionState:
    state = SessionState(key)
    if not data:
        return state
    found = _decode(data)
    known = {policy.hash: policy for policy in policies}
    for hash, saved in found.policies.items():
        if hash in known:
            state.policies[hash] = _load_policy(known[hash], saved, key)
    others = [hash for hash in found.policies if hash not in known]
    state.others = {hash: found.policies[hash] for hash in others[-MOST_OTHERS:]}
    state.above = found.above
    state.fed = frozenset(found.fed)
    state.runs, state.denied = found.runs, found.denied
    calls = [_revive(one, key) for one in found.open]
    state.open = {call.call_id: call for call in calls if isinstance(call, ToolCall)}
    state.turn, state.attempts = found.turn, found.attempts
    return state


def _load_policy(policy: CompiledPolicy, saved: _PolicyData, session: str) -> PolicyState:
    state = PolicyState(policy)
    state.attempts = Evaluation.restore(policy.attempts, bytes(saved.attempts))
    state.calls = Evaluation.restore(policy.calls, bytes(saved.calls))
    if bytes(saved.base) != bytes(_NOTHING):
        state.base = Evaluation.restore(policy.calls, bytes(saved.base))
        state.log = [Logged(_revive(event, session), settled) for event, settled in saved.log]
    return state


def _event(event: Event) -> list[Any]:
    origin = event.origin
    who = [origin.run, origin.parent_run, origin.agent]
    if isinstance(event, ToolCall):
        return ["call", who, event.turn, event.at, event.name, event.call_id, event.arguments]
    assert isinstance(event, ToolResult)
    call = None if event.call is None else _event(event.call)
    return ["result", who, event.turn, event.at, event.name, event.call_id, event.content, event.is_error, call]


def _revive(data: list[Any], session: str) -> Event:
    kind, (run, parent_run, agent), turn, at, name, call_id, content, *rest = data
    origin = Origin(session, run, parent_run, agent)
    if kind == "call":
        return ToolCall(origin=origin, turn=turn, at=at, name=name, call_id=call_id, arguments=content)
    is_error, call = rest
    answered = None if call is None else _revive(call, session)
    return ToolResult(
        origin=origin,
        turn=turn,
        at=at,
        name=name,
        call_id=call_id,
        content=content,
        is_error=is_error,
        call=answered if isinstance(answered, ToolCall) else None,
    )
