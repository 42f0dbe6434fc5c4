"""check: did this recorded agent keep its rules? Fold the trace, then `end`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bylaw.engine.compile import Program, compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.ports import TraceSource
from bylaw.model.report import CheckReport, FailOn, Finding, OutcomeCounts, TraceSummary
from bylaw.model.rule import Rule
from bylaw.model.verdict import Outcome, Verdict

KEPT = 10_000
"""findings held in memory; all are counted, and `on_finding` sees every one"""


class Check:
    """A check under way: add traces one after the other, then take the report."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        fail_on: FailOn = "error",
        allow_vacuous: bool = False,
        on_finding: Callable[[Finding], None] | None = None,
        keep: int = KEPT,
    ) -> None:
        self._program: Program = compile_rules(rules)
        self._on_finding = on_finding
        self._keep = keep
        self._report = CheckReport(
            rules=tuple(rules),
            outcomes=OutcomeCounts(),
            by_rule={rule.id: OutcomeCounts() for rule in rules},
            fail_on=fail_on,
            allow_vacuous=allow_vacuous,
        )

    def add(self, source: TraceSource) -> None:
        evaluation = Evaluation(self._program)
        step = evaluation.step
        for event in source:
            verdicts = step(event)
            if verdicts:
                self._take(source.name, verdicts)
        self._take(source.name, evaluation.end(complete=source.complete))
        self._count(evaluation)
        self._report.traces.append(_summary(source, evaluation))

    def report(self, unread: Iterable[Diagnostic] = ()) -> CheckReport:
        self._report.findings.sort(key=_reading_order(self._report))
        self._report.unread = tuple(unread)
        return self._report

    def _take(self, trace: str, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            finding = Finding(trace, verdict)
            self._report.finding_count += 1
            if len(self._report.findings) < self._keep:
                self._report.findings.append(finding)
            if self._on_finding is not None:
                self._on_finding(finding)

    def _count(self, evaluation: Evaluation) -> None:
        for rule_id, outcome in evaluation.outcomes().items():
            self._report.outcomes.add(outcome)
            self._report.by_rule[rule_id].add(outcome)
        for rule_id, notes in evaluation.notes().items():
            earlier = self._report.notes.get(rule_id, ())
            self._report.notes[rule_id] = tuple(dict.fromkeys((*earlier, *notes)))


_SHOWN_FIRST = (Outcome.ERROR, Outcome.VIOLATED, Outcome.INCONCLUSIVE, Outcome.VACUOUS)


def _reading_order(report: CheckReport) -> Callable[[Finding], tuple[int, int, float, int]]:
    """Trace by trace, what was broken before what was not decided, then by turn, the end last."""
    traces = {summary.name: i for i, summary in enumerate(report.traces)}
    rules = {rule.id: i for i, rule in enumerate(report.rules)}

    def key(finding: Finding) -> tuple[int, int, float, int]:
        verdict = finding.verdict
        turn = float("inf") if verdict.turn is None else verdict.turn
        return traces[finding.trace], _SHOWN_FIRST.index(verdict.outcome), turn, rules[verdict.rule.id]

    return key


def check(
    sources: Iterable[TraceSource], rules: Sequence[Rule], *, fail_on: FailOn = "error", allow_vacuous: bool = False
) -> CheckReport:
    job = Check(rules, fail_on=fail_on, allow_vacuous=allow_vacuous)
    for source in sources:
        job.add(source)
    return job.report()


def _summary(source: TraceSource, evaluation: Evaluation) -> TraceSummary:
    return TraceSummary(
        name=source.name,
        turns=evaluation.turns,
        sessions=evaluation.sessions,
        complete=source.complete,
        format=source.format,
        skipped=source.skipped,
        notes=(*source.notes, *_empty(evaluation.empty_sessions)),
        problems=tuple(source.problems),
    )


def _empty(sessions: int) -> tuple[str, ...]:
    if not sessions:
        return ()
    return ("1 session holds no turn" if sessions == 1 else f"{sessions:,} sessions hold no turn",)
