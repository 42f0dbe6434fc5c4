"""The state of one session in memory, and the functions that feed it with events around calls.

Each policy has two evaluations. The one about attempts advances with every attempt. The one about calls advances when a
call is allowed: that is the reservation. Until the call is settled, it and all later events are stored, so that a call
which never ran can be removed by undoing and replaying them. In memory each event has its undo record, which shares its
states with the evaluation. Written down is one undo record for all of them, since each one would hold whole states. The
live guard and the follow-up over the event log use the same functions for results, messages, releases and the end."""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from bylaw.engine.compile import NOBODY
from bylaw.engine.evaluation import Evaluation
from bylaw.engine.scope import NOTHING_MOVED, Undo, join_undos
from bylaw.guard.decide.chain import Chain, Policies, ancestors, lineage
from bylaw.guard.decide.policy import MESSAGES, RESPONSES, RESULTS, CompiledPolicy
from bylaw.guard.decide.records import REDACT
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt
from bylaw.model.events import Event, Message, Origin, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.model.verdict import Outcome, Verdict

_log = logging.getLogger("bylaw")

MOST_UNSETTLED = 256
"""calls and results that can be undone; beyond that the oldest call counts as made"""
SETTLED_AT_ONCE = 64
"""events that are dropped from the beginning of the log together"""
MOST_OPEN = 256
"""calls whose result can still be linked; they are written down with every decision"""
MOST_USED = 256
"""ids of calls that are recognised if they are used again"""
MOST_REPORTED = 64
"""requests that are recognised if they are sent again"""
MOST_DENIED = 256
"""denied calls that are counted separately"""


class LoggedEvent(Struct):
    """An event since the oldest reservation that is not settled."""

    event: Event
    undo: Undo | None
    """None where it was read from a store; then the undo record of the whole log is known"""
    settled: bool = True
    text: Raw | None = None
    """the event, encoded"""


class PolicyState:
    """The state of one policy in one session."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self.attempts = Evaluation(policy.attempts)
        self.calls = Evaluation(policy.calls)
        self.log: list[LoggedEvent] = []
        """from the oldest unsettled reservation on"""
        self._settled = 0
        """events at the beginning of the log that are settled"""
        self._joined: tuple[int, Undo] = 0, NOTHING_MOVED
        """how many events of the log one undo record takes back, and that record"""
        self.undo_text: tuple[Undo, Raw] | None = None
        """that record, encoded"""
        self.counter_states: dict[int, Any] = {}
        """by rule: the state whose counters were encoded last"""
        self.counter_texts: dict[str, Raw] = {}
        """the encodings, by the name of the counter"""
        self.counter_limits: dict[str, int] = {}
        """the limits of the rules whose counters these are"""

    @property
    def undo(self) -> Undo:
        """What takes back the whole log at once."""
        joined, undo = self._joined
        if not joined and len(self.log) == 1 and self.log[0].undo is not None:
            self._joined = 1, self.log[0].undo
        elif joined < len(self.log):
            longer = join_undos([undo, *_undos(self.log[joined:])])
            # events that move the same rules again change nothing, and then its text need not be written anew
            self._joined = len(self.log), undo if joined and longer == undo else longer
        return self._joined[1]

    def read_log(self, log: list[LoggedEvent], undo: Undo) -> None:
        """The log as it was written down, with what takes it back."""
        self.log, self._joined = log, (len(log), undo)
        self._settled = next((i for i, one in enumerate(log) if not one.settled), len(log))

    def reserve(self, call: ToolCall) -> None:
        log = self.log
        log.append(LoggedEvent(call, self.calls.reserve(call), False))
        if len(log) - self._settled > MOST_UNSETTLED:
            log[self._settled].settled = True
            self._drop_settled()

    def observe(self, event: Event) -> Sequence[Verdict]:
        """An event that certainly happened."""
        if isinstance(event, Response | SessionEnd):  # proves that the calls before it were made
            self.settle(None)
        if not self.log or not isinstance(event, ToolCall | ToolResult | Message):  # rules ignore other kinds
            return self.calls.step(event)
        if self.policy.calls.route(event) is NOBODY:
            return self.calls.step(event)
        verdicts, undo = self.calls.retractable(event)
        self.log.append(LoggedEvent(event, undo))
        return verdicts

    def settle(self, call_id: str | None) -> None:
        """The call was made; None means every call so far."""
        for logged in self.log:
            if isinstance(logged.event, ToolCall) and call_id in (None, logged.event.call_id):
                logged.settled = True
        self._drop_settled()

    def release(self, call_id: str) -> bool:
        """The call was never made: restore the state that would be without it."""
        log = self.log
        released = next((i for i in range(len(log) - 1, -1, -1) if _is_reservation(log[i], call_id)), None)
        if released is None:
            return False
        since = 0 if log[0].undo is None else released
        again = [one for i, one in enumerate(log) if i >= since and i != released]
        session = log[0].event.origin.session
        self.calls.undo(session, self.undo if since == 0 else join_undos(_undos(log[since:])))
        del log[since:]
        self._settled, self._joined = min(self._settled, since), (0, NOTHING_MOVED)
        for one in again:
            log.append(LoggedEvent(one.event, self.calls.retractable(one.event)[1], one.settled))
        self._drop_settled()
        return True

    def _drop_settled(self) -> None:
        """Events before the first unsettled one are never undone. Some at once, since the undo record of the log has
        to be joined anew."""
        log, done = self.log, self._settled
        while done < len(log) and log[done].settled:
            done += 1
        self._settled = done
        if done < min(len(log), SETTLED_AT_ONCE) or not done:
            return
        if done < len(log) and log[done].undo is None:
            self._find_undos()
        del log[:done]
        self._settled, self._joined = 0, (0, NOTHING_MOVED)

    def _find_undos(self) -> None:
        """The undo record of each event of a log that was read from a store."""
        replayed = Evaluation.restore(self.policy.calls, self.calls.snapshot())
        replayed.undo(self.log[0].event.origin.session, self.undo)
        for one in self.log:
            one.undo = replayed.retractable(one.event)[1]


def _is_reservation(one: LoggedEvent, call_id: str) -> bool:
    return not one.settled and isinstance(one.event, ToolCall) and one.event.call_id == call_id


def _undos(log: list[LoggedEvent]) -> list[Undo]:
    return [one.undo for one in log if one.undo is not None]


class AlreadyReported(Exception):
    """The event was already reported under the same id: nothing has changed."""


class SessionState:
    """One session, between a load and a store."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.origin = Origin(key)
        self.policies: dict[str, PolicyState] = {}
        """by policy hash"""
        self.fed: frozenset[str] = frozenset()
        """kinds of events that the host has fed"""
        self.runs: dict[str, tuple[str | None, str | None]] = {}
        """run → its agent and its parent run"""
        self.denied: dict[str, int] = {}
        """action hash → how often it was denied"""
        self.open: dict[str, ToolCall] = {}
        self.turn: int | None = None
        self.above: dict[str, tuple[str, ...]] = {}
        """the family: each announced agent → every ancestor that was announced or stated for it, root first"""
        self.used: dict[str, None] = {}
        """digests of the latest call ids that the host has given to allowed calls"""
        self.reported: dict[str, None] = {}
        """digests of the latest ids of requests that reported events"""
        self.touched = False
        """whether it was used since sessions were last searched for one to forget"""
        self.others: dict[str, Any] = {}
        """what rules remember that this guard does not have; never read, always stored again"""
        self.afresh = False
        """whether a policy started after others had already seen events"""
        self.written: dict[str, tuple[ToolCall, Raw]] = {}
        """open calls with their encoded form, by id"""
        self.loaded_for: Policies | None = None
        """the rules that its states belong to"""
        self.redact = REDACT
        """redacts stored values"""

    def of(self, policy: CompiledPolicy) -> PolicyState:
        state = self.policies.get(policy.hash)
        if state is None:
            state = self.policies[policy.hash] = PolicyState(policy)
            self.afresh = self.afresh or bool(self.others)
        return state

    def agent_of(self, attempt: Attempt) -> str | None:
        """The agent of an attempt; one that names only its run belongs to the agent of that run."""
        if attempt.agent is None and attempt.run is not None and attempt.run in self.runs:
            return self.runs[attempt.run][0]
        return attempt.agent

    def announce(self, run: str, agent: str | None, parent_run: str | None) -> None:
        """A run of the agent has started. Raises ValueError if it was announced as another: the runs below it would
        leave their family."""
        known_agent, known_parent = self.runs.get(run, (None, None))
        agent, parent_run = agent or known_agent, parent_run or known_parent
        if known_agent not in (None, agent):
            raise ValueError(f"the run `{run}` is of the agent `{known_agent}`, and cannot become one of `{agent}`")
        if known_parent not in (None, parent_run):
            raise ValueError(f"the run `{run}` is below the run `{known_parent}`, and cannot move below `{parent_run}`")
        self.runs[run] = (agent, parent_run)
        if agent is not None:
            self._add_to_family(agent, ancestors(Attempt(tool="-", run=run), self.runs))

    def remember_agent(self, attempt: Attempt) -> None:
        """Keep the run and the ancestors of the agent, since later events name them only in part."""
        agent, run = attempt.agent, attempt.run
        if agent is None or (run is attempt.parent_run is None and not attempt.ancestors):
            return
        stated, possible = lineage(attempt, self.runs, self.above)
        is_placed = bool(attempt.parent_run or attempt.ancestors)
        # once there is a family, a run without a parent is no proof that the agent has none
        if run is not None and run not in self.runs and (is_placed or not self.above):
            self.runs[run] = (agent, attempt.parent_run)
        if is_placed:
            if not self.above or any(name in self.above for name in stated):
                for i, name in enumerate(stated):
                    self._add_to_family(name, stated[:i])
            self._add_to_family(agent, (*possible, *stated))  # what it states does not free it from the others

    def _add_to_family(self, agent: str, above: tuple[str, ...]) -> None:
        known = self.above.get(agent)
        new = tuple(name for name in above if name != agent and name not in (known or ()))
        if new or known is None:
            self.above[agent] = (*(known or ()), *new)

    def is_used(self, call_id: str) -> bool:
        return call_id in self.open or _digest(call_id) in self.used

    def use_call_id(self, call_id: str) -> None:
        """The host has given this id to a call that may run."""
        self.used[_digest(call_id)] = None
        if len(self.used) > MOST_USED:
            del self.used[next(iter(self.used))]

    def is_reported(self, request: str) -> bool:
        return _digest(request) in self.reported

    def mark_reported(self, request: str) -> None:
        self.reported[_digest(request)] = None
        if len(self.reported) > MOST_REPORTED:
            del self.reported[next(iter(self.reported))]

    @property
    def is_blank(self) -> bool:
        """Whether a new session would be judged in the same way."""
        if self.runs or self.above or self.fed or self.denied or self.open or self.used or self.reported:
            return False
        return not any(
            own.log or own.attempts.states_of(self.key) or own.calls.states_of(self.key)
            for own in self.policies.values()
        )

    def open_call(self, call: ToolCall) -> None:
        self.open[call.call_id] = call
        if len(self.open) > MOST_OPEN:
            del self.open[next(iter(self.open))]

    def deny(self, action: str) -> int:
        """Count a denial of this action; returns the number of earlier ones."""
        before = self.denied.pop(action, 0)
        self.denied[action] = before + 1
        if len(self.denied) > MOST_DENIED:
            del self.denied[next(iter(self.denied))]
        return before


def _digest(call_id: str) -> str:
    """Eight characters, since it is written with every decision."""
    return b64encode(blake2b(call_id.encode(), digest_size=6).digest()).decode()


_GENERATED = re.compile("[0-9a-f]{12}-[0-9]+")


def is_generated(call_id: str) -> bool:
    """Whether the host has given no id to the call. A session need not remember it."""
    return _GENERATED.fullmatch(call_id) is not None


def doubt_call(state: SessionState, call_id: str) -> None:
    """Say so if the host has given this id to no call that may run."""
    if not state.is_used(call_id) and not is_generated(call_id):
        _log.warning("the result of `%s` in the session `%s`: no such call is known", call_id, state.key)


Findings: TypeAlias = list[tuple[CompiledPolicy, Verdict]]


def record_result(
    policies: Policies, state: SessionState, call_id: str, content: Any, is_error: bool | None, at: float
) -> tuple[ToolResult, Findings]:
    """The call ran and returned `content`: the result as an event, and the rules that it breaks."""
    call = state.open.pop(call_id, None)
    result = ToolResult(
        origin=call.origin if call is not None else Origin(state.key),
        turn=call.turn if call is not None else None,
        at=at,
        name=call.name if call is not None else None,
        call_id=call_id,
        content=content,
        is_error=is_error,
        call=call,
    )
    state.fed |= {RESULTS}
    return result, _observe(policies, state, result, settle=call_id)


def observe_event(policies: Policies, state: SessionState, event: Event) -> tuple[Event, Findings]:
    """The event with its turn, and the rules that it breaks."""
    if isinstance(event, Response):
        state.turn = 0 if state.turn is None else state.turn + 1
        calls_follow = not event.tool_calls and event.stop_reason in _STOPS_FOR_CALLS
        event = replace(event, turn=state.turn, calls_follow=calls_follow)
        state.fed |= {RESPONSES, MESSAGES} if event.request is not None else {RESPONSES}
    elif isinstance(event, Message):
        state.fed |= {MESSAGES}
    elif isinstance(event, Request) and event.messages:
        state.fed -= {MESSAGES}  # they are read with its response, and may never be if it comes without them
    return event, _observe(policies, state, event)


_STOPS_FOR_CALLS = (None, "tool_use", "tool_calls", "tool-calls", "function_call")


def end_session(state: SessionState, *, complete: bool) -> Findings:
    """The rules that only the end of the session breaks. The state of all rules is reset.

    If the host feeds no responses, rules about calls are judged by the calls; the others are blind."""
    found: Findings = []
    for own in state.policies.values():
        own.settle(None)
        verdicts = own.calls.end(complete=complete, of_calls=state.key)
        broken = [verdict for verdict in verdicts if verdict.outcome is Outcome.VIOLATED]
        if RESPONSES not in state.fed:
            broken = [verdict for verdict in broken if own.policy.needs[verdict.rule.id] <= state.fed]
        found += [(own.policy, verdict) for verdict in broken]
    state.policies.clear()
    state.runs.clear()  # who was announced is not known in the session that begins next
    state.above.clear()
    return found


def release_call(state: SessionState, call_id: str) -> bool:
    """The call was allowed and never ran. Returns whether any rule had reserved it."""
    released = [policy.release(call_id) for policy in state.policies.values()]
    state.open.pop(call_id, None)
    return any(released)


def concerned_chain(policies: Policies, event: Event, state: SessionState) -> Chain:
    """The policies of the agent that the event happened to. If its ancestors are invalid, only its own apply."""
    origin = event.origin
    agent = policies.named(origin.agent)
    attempt = Attempt(tool="-", agent=agent, run=origin.run, parent_run=origin.parent_run)
    is_placed = isinstance(event, ToolResult) or agent in state.above  # a call reaches every rule that it could concern
    try:
        return policies.chain(attempt, state.runs, state.above if is_placed else {})
    except RefusedAttempt:
        return policies.without_ancestors(agent)


def _observe(policies: Policies, state: SessionState, event: Event, *, settle: str | None = None) -> Findings:
    found: Findings = []
    for policy in concerned_chain(policies, event, state).reserving:
        own = state.of(policy)
        if settle is not None:
            own.settle(settle)
        found += [(policy, verdict) for verdict in own.observe(event) if verdict.outcome is not Outcome.OK]
    return found
