"""Traffic → proposals: mined from most of the sessions, and judged by the engine on all of them."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from bylaw.guard.backtest.backtest import OpenSessions
from bylaw.guard.backtest.replay import RecordedSession, Replay, example_of, trial_guard
from bylaw.guard.proposals.candidates import propose_limits, propose_orders
from bylaw.guard.proposals.facts import Facts, SessionFacts
from bylaw.guard.proposals.report import Proposal, ProposalReport
from bylaw.model.events import Event, Message, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.model.ports import TraceSource
from bylaw.rules import load_guard
from bylaw.traces.source import Traces, as_sources

MIN_SUPPORT = 10
HOLD_OUT = 0.25
MOST_FALSE_STOPS = 0.01
"""share of the held-out calls that a proposal is about"""
EXAMPLES = 2
MOST_PROPOSALS = 200

Sources: TypeAlias = Callable[[], Iterable[TraceSource]]
"""returns the traffic from its beginning at each call, since it is read twice"""


class ProposalOptions(Struct, frozen=True, kw_only=True):
    min_support: int = MIN_SUPPORT
    """calls that a rule is based on; for a ceiling, sessions"""
    hold_out: float = HOLD_OUT
    """share of the sessions that nothing is mined from"""
    agent: str | None = None
    """only calls of this agent"""
    schemas: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schemas of the tools' arguments: limits that they state are not proposed"""


def propose(
    traces: Traces,
    *,
    min_support: int = MIN_SUPPORT,
    hold_out: float = HOLD_OUT,
    agent: str | None = None,
    tool_schemas: Mapping[str, Any] | None = None,
) -> ProposalReport:
    """Which rules does clean traffic suggest?

    Traces are read twice: paths, or traces in memory. `report.proposals` has the strongest first;
    `bylaw.guard.proposals.report.render_rule_file(report)` is the file that `bylaw guard propose` writes.
    """
    options = ProposalOptions(min_support=min_support, hold_out=hold_out, agent=agent, schemas=tool_schemas or {})
    return mine_proposals(lambda: as_sources(traces), options)


def mine_proposals(sources: Sources, options: ProposalOptions) -> ProposalReport:
    report = ProposalReport(agent=options.agent, min_support=options.min_support, hold_out=options.hold_out)
    facts = _gather(sources(), options, report)
    found = [
        *propose_orders(facts, options.min_support),
        *propose_limits(facts, options.min_support, options.schemas),
    ]
    _make_ids_unique(found)
    if found:
        _Trial(found, options, report).run(sources())
    return report


def is_held_out(trace: str, session: str, share: float) -> bool:
    """The same sessions every time, independent of the other traffic."""
    return zlib.crc32(f"{trace}\0{session}".encode("utf-8", "replace")) % 10_000 < share * 10_000


def _gather(sources: Iterable[TraceSource], options: ProposalOptions, report: ProposalReport) -> Facts:
    facts = Facts()
    notes: list[str] = []
    for source in sources:
        _gather_trace(source, facts, options, report)
        notes += [f"{source.name}: {note}" for note in source.notes]
    report.calls, report.sessions, report.notes = facts.calls, facts.sessions, tuple(notes)
    report.unnamed_calls, report.too_varied = facts.unnamed, facts.too_varied
    return facts


def _gather_trace(source: TraceSource, facts: Facts, options: ProposalOptions, report: ProposalReport) -> None:
    def begin(session: str) -> tuple[SessionFacts, bool]:
        return SessionFacts(), is_held_out(source.name, session, options.hold_out)

    def end(session: str, state: tuple[SessionFacts, bool], complete: bool) -> None:
        known, held_out = state
        report.held_out_sessions += held_out
        if not held_out:
            facts.end(known)

    sessions = OpenSessions(begin, end)
    for event in source:
        known, held_out = sessions.of(event.origin.session)
        is_other = held_out or (options.agent is not None and event.origin.agent != options.agent)
        if isinstance(event, SessionEnd):
            sessions.end(event.origin.session, complete=event.complete)
        elif isinstance(event, ToolCall) and not is_other:
            facts.call(event, known)
        elif isinstance(event, ToolResult) and not is_other:
            known.add_result(event)
    sessions.end_all(complete=source.complete)
    report.resumed += sessions.resumed


def _make_ids_unique(proposals: Sequence[Proposal]) -> None:
    """The rules of one file need different ids."""
    used: Counter[str] = Counter()
    for one in proposals:
        used[one.id] += 1
        if used[one.id] > 1:
            one.rule = {**one.rule, "id": f"{one.id}-{used[one.id]}"}


_TrialSession: TypeAlias = tuple[RecordedSession, bool, set[str]]
"""a session of the trial, whether it is held out, and the candidates that stop a call in it"""


class _Trial:
    """All candidates as rules of a guard in shadow, on the traffic they were mined from and on the rest."""

    def __init__(self, found: Sequence[Proposal], options: ProposalOptions, report: ProposalReport) -> None:
        self._found = {one.id: one for one in found}
        guard = trial_guard(load_guard([one.rule for one in found]).policies)
        self._replay, self._options, self._report = Replay(guard), options, report
        self._own_stops: Counter[str] = Counter()
        self._stopped: Counter[frozenset[str]] = Counter()
        """candidates → held-out sessions in which exactly these stop a call"""

    def run(self, sources: Iterable[TraceSource]) -> None:
        for source in sources:
            self._run_trace(source)
        self._rank()

    def _run_trace(self, source: TraceSource) -> None:
        def begin(session: str) -> _TrialSession:
            return RecordedSession(), is_held_out(source.name, session, self._options.hold_out), set()

        sessions = OpenSessions[_TrialSession](begin, self._end)
        for event in source:
            session = event.origin.session
            state = sessions.of(session)
            if isinstance(event, SessionEnd):
                sessions.end(session, complete=event.complete)
            else:
                self._observe(source.name, event, *state)
        sessions.end_all(complete=source.complete)

    def _observe(self, trace: str, event: Event, recorded: RecordedSession, held_out: bool, stops: set[str]) -> None:
        if self._options.agent is not None and event.origin.agent != self._options.agent:
            return
        if isinstance(event, ToolCall):
            self._call(trace, event, recorded, held_out, stops)
            recorded.add_call(event)
        elif isinstance(event, ToolResult | Response | Request | Message):
            recorded.observe(event)
            self._replay.observe(event, recorded)

    def _call(self, trace: str, call: ToolCall, recorded: RecordedSession, held_out: bool, stops: set[str]) -> None:
        judged = self._replay.judge(call, recorded)
        self._report.held_out_calls += held_out
        if held_out:
            for concern in judged.concerns:
                one = self._found[concern.key]
                one.held_out_calls += one.tools[0] == call.name
        for key, match in judged.matches:
            if not held_out:
                self._own_stops[key] += 1
                continue
            one = self._found[key]
            one.false_stops += 1
            stops.add(key)
            if len(one.counter_examples) < EXAMPLES:
                shown = example_of(trace, call, action=match.then.value, rules=(key,), why=match.message)
                one.counter_examples.append(shown)

    def _end(self, session: str, state: _TrialSession, complete: bool) -> None:
        recorded, held_out, stops = state
        self._replay.end(session, recorded, complete=complete)
        if held_out and stops:
            self._stopped[frozenset(stops)] += 1

    def _rank(self) -> None:
        ranked = []
        for one in self._found.values():
            why = self._why_not(one)
            if why is not None:
                self._report.dropped[why] = self._report.dropped.get(why, 0) + 1
                continue
            total = one.calls + one.held_out_calls
            one.strength = wilson(total - one.false_stops, total) * one.specificity
            ranked.append(one)
        ranked.sort(key=lambda one: (-one.strength, -one.calls, one.id))
        self._report.proposals, self._report.left_out = ranked[:MOST_PROPOSALS], len(ranked[MOST_PROPOSALS:])
        names = {one.id for one in self._report.proposals}
        self._report.stopped_sessions = sum(
            sessions for stops, sessions in self._stopped.items() if not names.isdisjoint(stops)
        )

    def _why_not(self, one: Proposal) -> str | None:
        if self._own_stops[one.id]:
            return "a call breaks it"
        if one.false_stops > MOST_FALSE_STOPS * one.held_out_calls:
            return "too many false stops in the held-out sessions"
        return None


def wilson(successes: int, total: int, z: float = 1.96) -> float:
    """The lower end of the Wilson interval of a share."""
    if not total:
        return 0.0
    share = successes / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (centre - spread) / (1 + z * z / total))
