"""`bylaw.check`, and the check it runs: traces are folded one after the other, and the report is taken at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bylaw.engine.compile import Program, compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Response
from bylaw.model.ports import TraceSource
from bylaw.model.rule import Rule
from bylaw.model.verdict import CheckReport, FailOn, Finding, Outcome, OutcomeCounts, TraceSummary, Verdict
from bylaw.rules.loader import Rules, as_rules
from bylaw.traces.observed_names import SeenNames
from bylaw.traces.source import Traces, as_sources

MOST_FINDINGS = 10_000
"""findings held in memory; all are counted, and `on_finding` gets every one"""


def check(
    trace: Traces,
    rules: Rules,
    *,
    fail_on: FailOn = "error",
    allow_vacuous: bool = False,
    strict: bool | None = None,
) -> CheckReport:
    """Did this recorded agent keep its rules?

    `trace`: a trace, the path of one (or a folder or glob), or several of those. `rules`: what `load_rules`
    returned, or the path of a rule file. `strict`: exit code 3 if a rule was not checked or anything was warned about;
    None: as the rule file says. The report's `exit_code` is what `bylaw check` would exit with.
    """
    if strict and allow_vacuous:
        raise ValueError("strict=True and allow_vacuous=True exclude each other")
    found = as_rules(rules)
    job = Check(
        found.rules,
        fail_on=fail_on,
        allow_vacuous=allow_vacuous,
        strict=found.strict if strict is None else strict,
        warnings=found.diagnostics,
        tools=found.tools,
    )
    for source in as_sources(trace):
        job.add(source)
    return job.report()


class Check:
    """A check in progress: add traces one after the other, then take the report."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        fail_on: FailOn = "error",
        allow_vacuous: bool = False,
        strict: bool = False,
        warnings: Iterable[Diagnostic] = (),
        tools: Iterable[str] = (),
        on_finding: Callable[[Finding], None] | None = None,
    ) -> None:
        """`warnings`: about the rules, from their files. `tools`: tools that exist, beside those in the traces."""
        self._program: Program = compile_rules(rules)
        self._seen = SeenNames(tools, rules)
        self._on_finding = on_finding
        self._report = CheckReport(
            rules=tuple(rules),
            outcomes=OutcomeCounts(),
            by_rule={rule.id: OutcomeCounts() for rule in rules},
            fail_on=fail_on,
            allow_vacuous=allow_vacuous,
            strict=strict,
            warnings=list(warnings),
        )

    def add(self, source: TraceSource) -> None:
        """Check one trace. Raises InputError if it cannot be read to its end; then nothing of it is reported."""
        evaluation = Evaluation(self._program)
        step, see = evaluation.step, self._seen.add
        report = self._report
        before, listed = report.finding_count, len(report.findings)
        try:
            for event in source:
                verdicts = step(event)
                if type(event) is Response:
                    see(event)
                if verdicts:
                    self._add_findings(source.name, verdicts)
        except InputError:
            report.finding_count = before
            del report.findings[listed:]
            raise
        self._add_findings(source.name, evaluation.end(complete=source.complete))
        self._count(evaluation)
        self._report.traces.append(_summary(source, evaluation))

    def report(self, unread: Iterable[Diagnostic] = (), *, refuses_unread: bool = False) -> CheckReport:
        """`unread`: why whole files could not be read; `refuses_unread`: that is bad input, not skipped on request."""
        self._report.refuses_unread = refuses_unread
        self._report.findings.sort(key=_reading_order_key(self._report))
        self._report.unread = tuple(unread)
        self._report.warnings += self._seen.doubts(self._program, self._report.warnings)
        return self._report

    def _add_findings(self, trace: str, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            finding = Finding(trace, verdict)
            self._report.finding_count += 1
            if len(self._report.findings) < MOST_FINDINGS:
                self._report.findings.append(finding)
            if self._on_finding is not None:
                self._on_finding(finding)

    def _count(self, evaluation: Evaluation) -> None:
        report, outcomes = self._report, evaluation.outcomes()
        for rule_id, outcome in outcomes.items():
            report.outcomes.add(outcome)
            report.by_rule[rule_id].add(outcome)
        report.scope_doubts += [rule for rule in evaluation.scope_doubts() if rule not in report.scope_doubts]
        report.broken_traces += any(outcome in (Outcome.VIOLATED, Outcome.ERROR) for outcome in outcomes.values())
        for rule_id, notes in evaluation.notes().items():
            report.notes[rule_id] = tuple(dict.fromkeys((*report.notes.get(rule_id, ()), *notes)))


def _reading_order_key(report: CheckReport) -> Callable[[Finding], tuple[int, int, float, int]]:
    """Trace by trace, the worst outcome first, then by turn; verdicts of the end come last."""
    traces = {summary.name: i for i, summary in enumerate(report.traces)}
    rules = {rule.id: i for i, rule in enumerate(report.rules)}

    def key(finding: Finding) -> tuple[int, int, float, int]:
        verdict = finding.verdict
        turn = float("inf") if verdict.turn is None else verdict.turn
        return traces[finding.trace], -verdict.outcome.badness, turn, rules[verdict.rule.id]

    return key


def _summary(source: TraceSource, evaluation: Evaluation) -> TraceSummary:
    empty = evaluation.empty_sessions
    notes = [f"{empty:,} session{' holds' if empty == 1 else 's hold'} no turn"] if empty else []
    return TraceSummary(
        name=source.name,
        turns=evaluation.turns,
        sessions=evaluation.sessions,
        complete=source.complete,
        format=source.format,
        skipped=source.skipped,
        notes=(*source.notes, *notes),
        problems=tuple(source.problems),
    )
