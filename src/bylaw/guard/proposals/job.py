"""Traffic → proposals. Mined from most of the sessions; judged by the engine on all of them."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from bylaw.guard.backtest.examples import example_of
from bylaw.guard.backtest.going import Going
from bylaw.guard.backtest.recorded import Recorded
from bylaw.guard.backtest.replay import Replay
from bylaw.guard.guard import Guard
from bylaw.guard.proposals.facts import Facts, SessionFacts
from bylaw.guard.proposals.limits import propose_limits
from bylaw.guard.proposals.model import Proposal, ProposalReport
from bylaw.guard.proposals.orders import propose_orders
from bylaw.model.events import Event, Message, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.model.ports import TraceSource

MIN_SUPPORT = 10
HOLD_OUT = 0.25
MOST_FALSE_STOPS = 0.01
"""of the calls kept apart that a proposal speaks of"""
EXAMPLES = 2
MOST_PROPOSALS = 200

Sources: TypeAlias = Callable[[], Iterable[TraceSource]]
"""the traffic, from its beginning at each call: it is read twice"""
MakeGuard: TypeAlias = Callable[[Sequence[dict[str, Any]]], Guard]
"""rules as in a file → a guard in shadow"""


class Asked(Struct, frozen=True, kw_only=True):
    min_support: int = MIN_SUPPORT
    """calls, or sessions of a ceiling"""
    hold_out: float = HOLD_OUT
    """the share of sessions that nothing is mined from"""
    agent: str | None = None
    """only calls of this agent"""
    schemas: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schemas of the tools' arguments: what they say already is not proposed"""


def propose(sources: Sources, make_guard: MakeGuard, asked: Asked) -> ProposalReport:
    report = ProposalReport(agent=asked.agent, min_support=asked.min_support, hold_out=asked.hold_out)
    facts = _gather(sources(), asked, report)
    found = [
        *propose_orders(facts, asked.min_support),
        *propose_limits(facts, asked.min_support, asked.schemas),
    ]
    _name_apart(found)
    if found:
        _Trial(found, make_guard([one.rule for one in found]), asked, report).run(sources())
    return report


def is_held_out(trace: str, session: str, share: float) -> bool:
    """The same sessions every time, whatever else the traffic holds."""
    return zlib.crc32(f"{trace}\0{session}".encode("utf-8", "replace")) % 10_000 < share * 10_000


def _gather(sources: Iterable[TraceSource], asked: Asked, report: ProposalReport) -> Facts:
    facts = Facts()
    notes: list[str] = []
    for source in sources:
        _gather_trace(source, facts, asked, report)
        notes += [f"{source.name}: {note}" for note in source.notes]
    report.calls, report.sessions, report.notes = facts.calls, facts.sessions, tuple(notes)
    report.unnamed_calls, report.too_varied = facts.unnamed, facts.too_varied
    return facts


def _gather_trace(source: TraceSource, facts: Facts, asked: Asked, report: ProposalReport) -> None:
    def begin(session: str) -> tuple[SessionFacts, bool]:
        return SessionFacts(), is_held_out(source.name, session, asked.hold_out)

    def end(session: str, state: tuple[SessionFacts, bool], complete: bool) -> None:
        known, apart = state
        report.held_out_sessions += apart
        if not apart:
            facts.end(known)

    going = Going(begin, end)
    for event in source:
        known, apart = going.of(event.origin.session)
        if isinstance(event, SessionEnd):
            going.end(event.origin.session, complete=event.complete)
        elif not apart:
            _note(facts, known, event, asked.agent)
    going.end_all(complete=source.complete)
    report.resumed += going.resumed


def _note(facts: Facts, session: SessionFacts, event: Event, agent: str | None) -> None:
    if agent is not None and event.origin.agent != agent:
        return
    if isinstance(event, ToolCall):
        facts.call(event, session)
    elif isinstance(event, ToolResult):
        session.answered(event)


def _name_apart(proposals: Sequence[Proposal]) -> None:
    """Two rules of one file need two ids."""
    used: Counter[str] = Counter()
    for one in proposals:
        used[one.id] += 1
        if used[one.id] > 1:
            one.rule = {**one.rule, "id": f"{one.id}-{used[one.id]}"}


_Going: TypeAlias = tuple[Recorded, bool, set[str]]
"""a session in the trial: whether it was kept apart, and the candidates that stop a call in it"""


class _Trial:
    """Every candidate as a rule of a guard in shadow, on the traffic it was mined from and on the rest."""

    def __init__(self, found: Sequence[Proposal], guard: Guard, asked: Asked, report: ProposalReport) -> None:
        self._found = {one.id: one for one in found}
        self._replay, self._asked, self._report = Replay(guard), asked, report
        self._own_stops: Counter[str] = Counter()
        self._stopped: Counter[frozenset[str]] = Counter()
        """candidates that stop a call → sessions that were kept apart in which just these do"""

    def run(self, sources: Iterable[TraceSource]) -> None:
        for source in sources:
            self._run_trace(source)
        self._settle()

    def _run_trace(self, source: TraceSource) -> None:
        def begin(session: str) -> _Going:
            return Recorded(), is_held_out(source.name, session, self._asked.hold_out), set()

        going = Going[_Going](begin, self._end)
        for event in source:
            session = event.origin.session
            state = going.of(session)
            if isinstance(event, SessionEnd):
                going.end(session, complete=event.complete)
            else:
                self._take(source.name, event, *state)
        going.end_all(complete=source.complete)

    def _take(self, trace: str, event: Event, recorded: Recorded, apart: bool, stops: set[str]) -> None:
        if self._asked.agent is not None and event.origin.agent != self._asked.agent:
            return
        if isinstance(event, ToolCall):
            self._call(trace, event, recorded, apart, stops)
            recorded.called(event)
        elif isinstance(event, ToolResult | Response | Request | Message):
            recorded.tell(event)
            self._replay.tell(event, recorded)

    def _call(self, trace: str, call: ToolCall, recorded: Recorded, apart: bool, stops: set[str]) -> None:
        judged = self._replay.judge(call, recorded)
        self._report.held_out_calls += apart
        if apart:
            for concern in judged.concerns:
                one = self._found[concern.key]
                one.held_out_calls += one.tools[0] == call.name
        for key, match in judged.matches:
            if not apart:
                self._own_stops[key] += 1
                continue
            one = self._found[key]
            one.false_stops += 1
            stops.add(key)
            if len(one.counter_examples) < EXAMPLES:
                shown = example_of(trace, call, action=match.then.value, rules=(key,), why=match.message)
                one.counter_examples.append(shown)

    def _end(self, session: str, state: _Going, complete: bool) -> None:
        recorded, apart, stops = state
        self._replay.end(session, recorded, complete=complete)
        if apart and stops:
            self._stopped[frozenset(stops)] += 1

    def _settle(self) -> None:
        kept = []
        for one in self._found.values():
            why = self._why_not(one)
            if why is not None:
                self._report.dropped[why] = self._report.dropped.get(why, 0) + 1
                continue
            total = one.calls + one.held_out_calls
            one.strength = wilson(total - one.false_stops, total) * one.specificity
            kept.append(one)
        kept.sort(key=lambda one: (-one.strength, -one.calls, one.id))
        self._report.proposals, self._report.left_out = kept[:MOST_PROPOSALS], len(kept[MOST_PROPOSALS:])
        names = {one.id for one in self._report.proposals}
        self._report.stopped_sessions = sum(
            sessions for stops, sessions in self._stopped.items() if not names.isdisjoint(stops)
        )

    def _why_not(self, one: Proposal) -> str | None:
        if self._own_stops[one.id]:
            return "the engine sees a call that breaks it"
        if one.false_stops > MOST_FALSE_STOPS * one.held_out_calls:
            return "too many false stops in the sessions kept apart"
        return None


def wilson(held: int, total: int, z: float = 1.96) -> float:
    """The lower end of the interval for a share."""
    if not total:
        return 0.0
    share = held / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (centre - spread) / (1 + z * z / total))
