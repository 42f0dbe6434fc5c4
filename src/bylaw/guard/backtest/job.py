"""Traces through the rules, counted: decisions, coverage, flips. Memory does not grow with the traffic."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TypeAlias

from bylaw.guard.backtest.examples import example_of
from bylaw.guard.backtest.going import Going
from bylaw.guard.backtest.model import UNCLEAR, BacktestReport, Example, FailOn, RuleTally, Tally
from bylaw.guard.backtest.recorded import Recorded
from bylaw.guard.backtest.replay import Judged, Replay
from bylaw.guard.guard import Guard
from bylaw.model.events import Event, Message, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.model.guarding import Action, GuardRule
from bylaw.model.ports import TraceSource
from bylaw.model.report import TraceSummary
from bylaw.model.verdict import Outcome, Verdict

EXAMPLES = 3
"""kept of each rule and of each flip, unless asked for another number"""
_RESTRICTING = frozenset(action.value for action in Action if action.restricts)

Pair: TypeAlias = tuple[Recorded, Recorded]
"""of one session: for these rules, and for the others"""


class Backtest:
    """A backtest under way: add traces one after the other, then take the report."""

    def __init__(
        self, guard: Guard, *, against: Guard | None = None, examples: int = EXAMPLES, fail_on: FailOn = "none"
    ) -> None:
        self._replay = Replay(guard)
        self._other = None if against is None else Replay(against)
        self._keep = examples
        self._going = Going[Pair](self._begin, self._end)
        self._turns = 0
        rules = {key: _tally(key, rule) for key, rule in self._replay.rules()}
        self._keys = {rule.rule.id: key for key, rule in reversed(self._replay.rules())}
        """where two agents have rules of one name, what is found afterwards goes to the first"""
        late = tuple(id for policy in guard.policies.all for id in policy.follow_up_only)
        self._report = BacktestReport(
            policy=guard.policy,
            against=None if against is None else against.policy,
            fail_on=fail_on,
            rules=rules,
            never_decide=late,
        )

    def add(self, source: TraceSource) -> None:
        before, self._turns = self._report.sessions, 0
        finished = False
        try:
            for event in source:
                self._report.events += 1
                self._take(source.name, event)
            finished = True
        finally:
            self._going.end_all(complete=finished and source.complete)
        self._report.resumed = self._going.resumed
        self._report.traces.append(self._summary(source, self._report.sessions - before))

    def report(self) -> BacktestReport:
        return self._report

    def _take(self, trace: str, event: Event) -> None:
        session = event.origin.session
        if isinstance(event, SessionEnd):
            self._going.end(session, complete=event.complete)
            return
        ours, theirs = self._going.of(session)
        if isinstance(event, ToolCall):
            self._call(trace, event, ours, theirs)
        elif isinstance(event, ToolResult | Response | Request | Message):
            self._turns += isinstance(event, Response)
            ours.tell(event)
            self._after(self._replay.tell(event, ours))
            if self._other is not None:
                theirs.tell(event)
                self._other.tell(event, theirs)

    def _begin(self, session: str) -> Pair:
        self._report.sessions += 1
        return Recorded(), Recorded()

    def _end(self, session: str, pair: Pair, complete: bool) -> None:
        ours, theirs = pair
        self._after(self._replay.end(session, ours, complete=complete))
        if self._other is not None:
            self._other.end(session, theirs, complete=complete)
        self._report.stopped_sessions += ours.stopped
        for key in ours.matched:
            self._report.rules[key].sessions += 1

    # -- one call -------------------------------------------------------------------------------------------------

    def _call(self, trace: str, call: ToolCall, ours: Recorded, theirs: Recorded) -> None:
        judged = self._replay.judge(call, ours)
        self._count(judged, ours)
        self._by_rule(trace, call, judged, ours)
        if self._other is not None:
            self._compare(trace, call, judged, self._other.judge(call, theirs))
            theirs.called(call)
        ours.called(call)

    def _count(self, judged: Judged, ours: Recorded) -> None:
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

    def _by_rule(self, trace: str, call: ToolCall, judged: Judged, ours: Recorded) -> None:
        rules = self._report.rules
        for concern in judged.concerns:
            rules[concern.key].concerned += 1
            rules[concern.key].lacking += concern.key in judged.lacking
        sure = [(key, match) for key, match in judged.matches if key not in judged.lacking]
        for key, match in sure:
            tally = rules.get(key) or self._stand_in(key, match.then.value)
            tally.matched += 1
            tally.doubtful += not match.certain
            tally.changed += match.shadow and _changes(match.then, judged.action)
            ours.matched.add(key)
            self._keep_example(tally.examples, trace, call, judged, match.reason or match.message)
        if judged.decided_by is not None:
            tally = rules.get(judged.decided_by) or self._stand_in(judged.decided_by, judged.action)
            tally.decided += 1
            if not judged.matches:
                tally.matched += 1
                ours.matched.add(tally.rule)
                self._keep_example(tally.examples, trace, call, judged, judged.why)

    def _stand_in(self, name: str, then: str) -> RuleTally:
        """What refused a call before any rule, or in place of one."""
        made = self._report.rules[name] = RuleTally(rule=name, then=then)
        return made

    def _compare(self, trace: str, call: ToolCall, judged: Judged, other: Judged) -> None:
        if judged.action == other.action:
            return
        flip = self._report.flips.setdefault(f"{other.action} → {judged.action}", Tally())
        flip.count += 1
        by = judged if judged.action in _RESTRICTING else other
        self._keep_example(flip.examples, trace, call, judged, by.why, other=other)

    def _keep_example(
        self,
        kept: list[Example],
        trace: str,
        call: ToolCall,
        judged: Judged,
        why: str,
        *,
        other: Judged | None = None,
    ) -> None:
        if len(kept) < self._keep:
            rules = tuple(dict.fromkeys(key for one in (judged, other) if one for key, _ in one.matches))
            before = None if other is None else other.action
            kept.append(example_of(trace, call, action=judged.action, rules=rules, why=why, before=before))

    def _after(self, found: Iterable[Verdict]) -> None:
        for verdict in found:
            if verdict.outcome is Outcome.VIOLATED:
                self._report.rules[self._keys[verdict.rule.id]].afterwards += 1

    def _summary(self, source: TraceSource, sessions: int) -> TraceSummary:
        return TraceSummary(
            name=source.name,
            turns=self._turns,
            sessions=sessions,
            complete=source.complete,
            format=source.format,
            skipped=source.skipped,
            notes=tuple(source.notes),
            problems=tuple(source.problems),
        )


def _changes(then: Action, action: str) -> bool:
    """Whether a rule would make the call go otherwise."""
    return action != UNCLEAR and then.strictness > Action(action).strictness


def _tally(key: str, rule: GuardRule) -> RuleTally:
    span = rule.rule.span
    line = None if span is None else f"{span.file}:{span.line}"
    return RuleTally(rule=key, then=rule.then.value, shadow=rule.shadow, line=line)
