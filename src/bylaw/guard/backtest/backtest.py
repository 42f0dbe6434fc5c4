"""Traces through the rules, counted: decisions, coverage, flips. Memory does not grow with the traffic."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from bylaw.engine.monitor import as_json, shorten
from bylaw.files.atomic import write_atomic
from bylaw.guard.backtest.replay import RecordedSession, Replay, ReplayedCall, example_of, trial_guard
from bylaw.guard.backtest.report import (
    UNCLEAR,
    BacktestReport,
    Example,
    FailOn,
    RuleTally,
    ShadowReport,
    ShadowTally,
    Tally,
)
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.policies import GuardRules, VersionChoice, load_policies
from bylaw.guard.stores.ports import GuardStore, each_event
from bylaw.guard.stores.records import EventRow
from bylaw.model.events import Event, Message, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.model.ports import TraceSource
from bylaw.model.rule import Action, GuardRule
from bylaw.model.verdict import Outcome, TraceSummary, Verdict
from bylaw.rules.promotion import promotion
from bylaw.rules.versions import select_each
from bylaw.traces.source import Traces, as_sources

T = TypeVar("T")

MOST_OPEN = 5_000
"""open sessions; beyond that the one that was idle longest counts as over"""
IDLE_SLOTS = 1 << 18
"""slots for the hashes of sessions that counted as over, to notice if one continues. A later session replaces an
earlier one in its slot, so the table never grows and `resumed` is a lower bound"""


class OpenSessions(Generic[T]):
    """The sessions of a trace that are still open. Many formats never mark the end of a session, so their number is
    bounded."""

    def __init__(
        self, begin: Callable[[str], T], end: Callable[[str, T, bool], None], *, most: int | None = None
    ) -> None:
        self._begin, self._end, self._most = begin, end, MOST_OPEN if most is None else most
        self._open: dict[str, T] = {}
        """in the order of their latest events"""
        self._latest: tuple[str, T] | None = None
        self._idle: array[int] | None = None
        self.resumed = 0
        """sessions that continued after they counted as over, at least"""

    def of(self, session: str) -> T:
        latest = self._latest
        if latest is not None and latest[0] == session:
            return latest[1]
        known = self._open.pop(session, None)
        if known is None:
            self._make_room(session)
            known = self._begin(session)
        self._open[session] = known
        self._latest = (session, known)
        return known

    def end(self, session: str, *, complete: bool) -> None:
        known = self.of(session)
        self._latest = None
        del self._open[session]
        self._end(session, known, complete)

    def end_all(self, *, complete: bool) -> None:
        for session in list(self._open):
            self.end(session, complete=complete)
        self._idle = None

    def _make_room(self, session: str) -> None:
        if self._idle is not None and self._idle[slot := _slot(session)] == _mark(session):
            self._idle[slot] = 0
            self.resumed += 1
        while len(self._open) >= self._most:
            oldest, known = next(iter(self._open.items()))
            del self._open[oldest]
            if self._idle is None:
                self._idle = array("q", bytes(8 * IDLE_SLOTS))
            self._idle[_slot(oldest)] = _mark(oldest)
            self._end(oldest, known, True)


def _mark(session: str) -> int:
    return hash(session) or 1  # 0 marks an empty slot


def _slot(session: str) -> int:
    return _mark(session) % IDLE_SLOTS


# -- decisions, coverage and flips ------------------------------------------------------------------------------------

EXAMPLES = 3
"""examples of each rule and of each flip"""
_RESTRICTING = frozenset(action.value for action in Action if action.restricts)

_Pair: TypeAlias = tuple[RecordedSession, RecordedSession]
"""one session: for these rules, and for the others"""


def backtest(
    rules: GuardRules,
    traces: Traces,
    *,
    against: GuardRules | None = None,
    fail_on: FailOn = "none",
    examples: int = EXAMPLES,
    version: VersionChoice = None,
    inputs: Mapping[str, str] | None = None,
) -> BacktestReport:
    """What would these rules have done to recorded traffic?

    `rules` and `against` as for `Guard`, `traces` as for `check`. The report's `coverage` is the share of calls whose
    recording holds every value that the rules need; its `exit_code` is that of `bylaw guard backtest`.
    """
    loaded = [load_policies(one, inputs=inputs) for one in (rules, against) if one is not None]
    guard, *other = map(trial_guard, select_each(loaded, version))
    job = Backtest(guard, against=other[0] if other else None, fail_on=fail_on, examples=examples)
    for source in as_sources(traces):
        job.add(source)
    return job.report()


def promote(rule: str, policy: str | PathLike[str]) -> str:
    """Turn on a shadow rule of the file. Returns the changed line. Raises ValueError if it is not clear what to change;
    the file is then unchanged."""
    path = Path(policy)
    edit = promotion(path.read_bytes().decode("utf-8"), rule, file=str(path))
    write_atomic(path, edit.text.encode())
    return edit.after


class Backtest:
    """A backtest in progress: `add` traces, then take the `report`."""

    def __init__(
        self, guard: BaseGuard, *, against: BaseGuard | None = None, examples: int = EXAMPLES, fail_on: FailOn = "none"
    ) -> None:
        self._replay = Replay(guard)
        self._other = None if against is None else Replay(against)
        self._most_examples = examples
        self._sessions = OpenSessions[_Pair](self._begin, self._end)
        self._turns = 0
        rules = {key: _rule_tally(key, rule) for key, rule in self._replay.rules()}
        self._keys = {rule.rule.id: key for key, rule in reversed(self._replay.rules())}
        """if two agents have rules with the same id, findings after a call are counted for the first"""
        self._report = BacktestReport(
            policy=guard.policy,
            against=None if against is None else against.policy,
            fail_on=fail_on,
            rules=rules,
            never_decide=tuple(id for policy in guard.policies.all for id in policy.follow_up_only),
        )

    def add(self, source: TraceSource) -> None:
        before, self._turns = self._report.sessions, 0
        calls = self._report.calls
        finished = False
        try:
            for event in source:
                self._report.events += 1
                self._observe(source.name, event)
            finished = True
        finally:
            self._sessions.end_all(complete=finished and source.complete)
        self._report.resumed = self._sessions.resumed
        summary = TraceSummary(
            name=source.name,
            turns=self._turns,
            sessions=self._report.sessions - before,
            complete=source.complete,
            format=source.format,
            skipped=source.skipped,
            notes=tuple(source.notes),
            problems=tuple(source.problems),
        )
        self._report.traces.append(summary)
        if not self._turns and self._report.calls == calls:
            self._report.empty.append(source.name)

    def report(self) -> BacktestReport:
        return self._report

    def _observe(self, trace: str, event: Event) -> None:
        session = event.origin.session
        if isinstance(event, SessionEnd):
            self._sessions.end(session, complete=event.complete)
            return
        ours, theirs = self._sessions.of(session)
        if isinstance(event, ToolCall):
            self._call(trace, event, ours, theirs)
        elif isinstance(event, ToolResult | Response | Request | Message):
            self._turns += isinstance(event, Response)
            ours.observe(event)
            self._count_afterwards(self._replay.observe(event, ours))
            if self._other is not None:
                theirs.observe(event)
                self._other.observe(event, theirs)

    def _begin(self, session: str) -> _Pair:
        self._report.sessions += 1
        return RecordedSession(), RecordedSession()

    def _end(self, session: str, pair: _Pair, complete: bool) -> None:
        ours, theirs = pair
        self._count_afterwards(self._replay.end(session, ours, complete=complete))
        if self._other is not None:
            self._other.end(session, theirs, complete=complete)
        self._report.stopped_sessions += ours.stopped
        for key in ours.matched:
            self._report.rules[key].sessions += 1

    # -- one call -------------------------------------------------------------------------------------------------

    def _call(self, trace: str, call: ToolCall, ours: RecordedSession, theirs: RecordedSession) -> None:
        judged = self._replay.judge(call, ours)
        self._count(judged, ours)
        self._count_rules(trace, call, judged, ours)
        if self._other is not None:
            self._compare(trace, call, judged, self._other.judge(call, theirs))
            theirs.add_call(call)
        ours.add_call(call)

    def _count(self, judged: ReplayedCall, ours: RecordedSession) -> None:
        report = self._report
        report.calls += 1
        report.actions[judged.action] += 1
        report.shadow_actions[judged.shadow_action] += 1
        if judged.concerns or judged.listed or judged.decided_by is not None:
            report.judged += 1
            report.covered += not judged.lacking
        for lack in set(chain.from_iterable(judged.lacking.values())):
            report.lacking[lack] = report.lacking.get(lack, 0) + 1
        report.after_a_stop += ours.stopped
        ours.stopped = ours.stopped or judged.action in _RESTRICTING

    def _count_rules(self, trace: str, call: ToolCall, judged: ReplayedCall, ours: RecordedSession) -> None:
        for concern in judged.concerns:
            tally = self._report.rules[concern.key]
            tally.concerned += 1
            tally.lacking += concern.key in judged.lacking
        for key, match in judged.matches:
            if key in judged.lacking:
                continue
            tally = self._tally(key, match.then.value)
            tally.matched += 1
            tally.doubtful += not match.certain
            is_stricter = judged.action != UNCLEAR and match.then.strictness > Action(judged.action).strictness
            tally.changed += match.shadow and is_stricter
            ours.matched.add(key)
            self._add_example(tally.examples, trace, call, judged, match.reason or match.message)
        if judged.decided_by is not None:
            tally = self._tally(judged.decided_by, judged.action)
            tally.decided += 1
            if not judged.matches:
                tally.matched += 1
                ours.matched.add(tally.rule)
                self._add_example(tally.examples, trace, call, judged, judged.why)

    def _tally(self, name: str, then: str) -> RuleTally:
        """A name that is not a rule decided before any rule, or in place of one."""
        tally = self._report.rules.get(name)
        if tally is None:
            tally = self._report.rules[name] = RuleTally(rule=name, then=then)
        return tally

    def _compare(self, trace: str, call: ToolCall, judged: ReplayedCall, other: ReplayedCall) -> None:
        if judged.action == other.action:
            return
        flip = self._report.flips.setdefault(f"{other.action} → {judged.action}", Tally())
        flip.count += 1
        by = judged if judged.action in _RESTRICTING else other
        self._add_example(flip.examples, trace, call, judged, by.why, other=other)

    def _add_example(
        self,
        examples: list[Example],
        trace: str,
        call: ToolCall,
        judged: ReplayedCall,
        why: str,
        *,
        other: ReplayedCall | None = None,
    ) -> None:
        if len(examples) < self._most_examples:
            rules = tuple(dict.fromkeys(key for one in (judged, other) if one for key, _ in one.matches))
            before = None if other is None else other.action
            examples.append(example_of(trace, call, action=judged.action, rules=rules, why=why, before=before))

    def _count_afterwards(self, found: Iterable[Verdict]) -> None:
        for verdict in found:
            if verdict.outcome is Outcome.VIOLATED:
                self._report.rules[self._keys[verdict.rule.id]].afterwards += 1


def _rule_tally(key: str, rule: GuardRule) -> RuleTally:
    span = rule.rule.span
    line = None if span is None else f"{span.file}:{span.line}"
    return RuleTally(rule=key, then=rule.then.value, shadow=rule.shadow, line=line)


# -- decisions of a live guard that shadow rules, or a whole guard in shadow, would have changed ----------------------

MOST_SESSIONS = 1_000_000
"""sessions that are counted separately for one rule"""


def shadow_report(store: GuardStore, *, rule: str | None = None, examples: int = EXAMPLES) -> ShadowReport:
    """Every rule that matched in shadow, or only one rule."""
    report, sessions = ShadowReport(), dict[str, set[int]]()
    for row in each_event(store):
        if row.kind != "decision" or "decision" not in row.data:
            continue
        report.decisions += 1
        action = Action(row.data["decision"]["action"])
        changed = False
        for match in _shadow_matches(row.data["decision"], action):
            if rule is not None and match["rule"] != rule:
                continue
            name = match["rule"]
            tally = report.rules.get(name)
            if tally is None:
                tally = report.rules[name] = ShadowTally(rule=name, then=match["then"], line=match.get("line"))
            changed |= _count(tally, match, row, action, examples)
            seen = sessions.setdefault(name, set())
            if len(seen) < MOST_SESSIONS:
                seen.add(hash(row.session))
            tally.sessions = len(seen)
        report.changed += changed
    return report


def _shadow_matches(decision: dict[str, Any], action: Action) -> Iterable[dict[str, Any]]:
    """Matches without effect: those of shadow rules, and all of a guard that is in shadow as a whole."""
    matches = decision.get("matches", [])
    found = [m for m in matches if m["shadow"] or Action(m["then"]).strictness > action.strictness]
    if not matches and "would" in decision:  # refused before any rule
        by = decision["decided_by"] or "the guard"
        found = [{"rule": by, "then": decision["would"], "message": decision["reason"], "reason": None, "line": None}]
    return found


def _count(tally: ShadowTally, match: dict[str, Any], row: EventRow, action: Action, examples: int) -> bool:
    """Returns whether the match would have changed the decision."""
    tally.matched += 1
    tally.first = row.at if tally.first is None else min(tally.first, row.at)
    tally.last = row.at if tally.last is None else max(tally.last, row.at)
    then = Action(match["then"])
    if then.strictness <= action.strictness:
        return False
    flip = f"{action.value} → {then.value}"
    tally.changed[flip] = tally.changed.get(flip, 0) + 1
    if len(tally.examples) < examples:
        tally.examples.append(_example(match, row, action))
    return True


def _example(match: dict[str, Any], row: EventRow, action: Action) -> Example:
    """The record holds no secrets."""
    attempt = row.data["attempt"]
    arguments = attempt.get("arguments")
    if isinstance(arguments, dict):
        shown = ", ".join(f"{key}={as_json(value)}" for key, value in arguments.items())
    else:
        shown = "" if arguments is None else as_json(arguments)
    tool = str(attempt["tool"])
    return Example(
        trace="",
        session=row.session,
        tool=tool,
        call=shorten(f"{tool}({shown})"),
        action=match["then"],
        before=action.value,
        rules=tuple(row.data["decision"]["matched"]),
        why=match["reason"] or match["message"],
    )
