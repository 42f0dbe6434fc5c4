"""What a guard remembers of one session.

Each policy has two evaluations of its own. The one about attempts moves on with every attempt. The one about calls
moves on when a call is allowed: that is the reservation. Until the call is settled, it is kept what takes it back, and
what happened since, so that a call which never ran can be taken out again by going through that once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from bylaw.engine.evaluation import Evaluation
from bylaw.engine.scope import Undo
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decision import Attempt
from bylaw.model.events import Event, Message, Origin, Response, SessionEnd, ToolCall, ToolResult
from bylaw.model.verdict import Verdict

MOST_UNSETTLED = 256
"""calls and results that are kept for a release; beyond that the oldest call counts as made"""
MOST_OPEN = 1024
"""calls whose result can still be linked"""
MOST_DENIED = 256
"""denied calls that are counted apart"""


class Logged(Struct):
    """Something that happened since the oldest reservation that is not settled."""

    event: Event
    undo: Undo
    settled: bool = True
    text: Raw | None = None
    """event and undo as they are written down"""


class PolicyState:
    """One policy in one session."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self.attempts = Evaluation(policy.attempts)
        self.calls = Evaluation(policy.calls)
        self.log: list[Logged] = []
        """from the oldest reservation on that is not settled"""

    def reserve(self, call: ToolCall) -> None:
        log = self.log
        log.append(Logged(call, self.calls.reserve(call), False))
        if len(log) > MOST_UNSETTLED:
            log[0].settled = True
            self._forget_settled()

    def tell(self, event: Event) -> Sequence[Verdict]:
        """Something that happened for certain."""
        if isinstance(event, Response | SessionEnd):  # it shows that the calls before it were made
            self.settle(None)
        if not self.log or not isinstance(event, ToolCall | ToolResult | Message):  # of others no rule hears
            return self.calls.step(event)
        decided, undo = self.calls.retractable(event)
        self.log.append(Logged(event, undo))
        return decided

    def settle(self, call_id: str | None) -> None:
        """The call was made; None: every call so far was."""
        for logged in self.log:
            if isinstance(logged.event, ToolCall) and call_id in (None, logged.event.call_id):
                logged.settled = True
        self._forget_settled()

    def release(self, call_id: str) -> bool:
        """The call was never made: as if it had not been allowed."""
        log = self.log
        released = {i for i, one in enumerate(log) if not one.settled and _call_id(one.event) == call_id}
        if not released:
            return False
        since = min(released)
        again = [one for i, one in enumerate(log) if i >= since and i not in released]
        for one in reversed(log[since:]):
            self.calls.undo(one.event.origin.session, one.undo)
        del log[since:]
        for one in again:
            log.append(Logged(one.event, self.calls.retractable(one.event)[1], one.settled))
        self._forget_settled()
        return True

    def _forget_settled(self) -> None:
        """What comes before everything that is not settled is never taken back."""
        log = self.log
        done = next((i for i, one in enumerate(log) if not one.settled), len(log))
        if done:
            del log[:done]


def _call_id(event: Event) -> str | None:
    return event.call_id if isinstance(event, ToolCall) else None


class SessionState:
    """One session, as it lives in memory between a load and a store."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.origin = Origin(key)
        self.policies: dict[str, PolicyState] = {}
        """by policy hash"""
        self.fed: frozenset[str] = frozenset()
        self.runs: dict[str, tuple[str | None, str | None]] = {}
        """run → its agent and its parent run"""
        self.denied: dict[str, int] = {}
        """action hash → how often it was denied"""
        self.open: dict[str, ToolCall] = {}
        self.turn: int | None = None
        self.above: dict[str, tuple[str, ...]] = {}
        """agent → those above it, as its latest attempt said"""
        self.others: dict[str, Any] = {}
        """what policies of other guards remember, or earlier ones of this; never read, always kept"""
        self.afresh = False
        """whether a policy began to remember after others had"""
        self.written: dict[str, tuple[ToolCall, Raw]] = {}
        """open calls as they were written down last, by their id"""

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
