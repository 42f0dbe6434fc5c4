"""Phrases about a contract that every renderer for people shares."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.contract.results import Cell, CellOutcome, ContractReport, FaultCount, RunEvidence
from bylaw.report.text import count

WORDS = {
    CellOutcome.OK: "ok",
    CellOutcome.VIOLATED: "violated",
    CellOutcome.NOT_APPLICABLE: "not applicable",
    CellOutcome.VACUOUS: "vacuous",
    CellOutcome.ERROR: "error",
}
_SHOWN_FIRST = (CellOutcome.VIOLATED, CellOutcome.ERROR, CellOutcome.VACUOUS)


def headline(report: ContractReport) -> str:
    """The verdict in one line; says what the exit code says."""
    return _HEADLINES[report.exit_code](report)


def _passed(report: ContractReport) -> str:
    if report.score == 100:
        return f"PASSED: score 100, {count(len(report.applicable), 'cell')} ok"
    return f"PASSED: {_score(report)}, {report.min_score:g} wanted; {_failures(report)}"


def _failed(report: ContractReport) -> str:
    if report.critical:
        broken = list(dict.fromkeys(cell.invariant for cell in report.critical))
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        return f"FAILED: critical `{broken[0]}`{more} violated, {_score(report)}"
    return f"FAILED: {_score(report)}, {report.min_score:g} wanted; {_failures(report)}"


def _not_shown(report: ContractReport) -> str:
    if not report.applicable:
        return "NOTHING CHECKED: no invariant applies in any scenario"
    return f"NOT SHOWN: {_score(report)}, {report.min_score:g} wanted; {_failures(report)}"


def _out_of_reach(report: ContractReport) -> str:
    if report.stopped is not None:
        return f"OUT OF REACH: {report.stopped}"
    return f"OUT OF REACH: {_score(report)}; {_failures(report)}"


def why_unjudged(report: ContractReport) -> list[str]:
    """The reasons why cells are in error, each once; none where the headline says why."""
    if report.stopped is not None:
        return []
    return list(dict.fromkeys(cell.reason for cell in report.with_outcome(CellOutcome.ERROR)))


_HEADLINES = {0: _passed, 1: _failed, 3: _not_shown, 4: _out_of_reach}


def _score(report: ContractReport) -> str:
    return f"score {report.score:g}"


def _failures(report: ContractReport) -> str:
    counted = ((outcome, len(report.with_outcome(outcome))) for outcome in _SHOWN_FIRST)
    return ", ".join(f"{count(n, 'cell')} {_STATES[outcome]}" for outcome, n in counted if n)


_STATES = {CellOutcome.VIOLATED: "violated", CellOutcome.ERROR: "in error", CellOutcome.VACUOUS: "vacuous"}


def size(report: ContractReport) -> str:
    parts = [
        f"{count(len(report.invariants), 'invariant')} × {count(len(report.scenarios), 'scenario')}",
        count(report.agent_runs, "run"),
        *([f"{report.repetitions} repetitions"] if report.repetitions > 1 else []),
        f"seed {report.seed}",
    ]
    return ", ".join(parts)


def outcome_counts(report: ContractReport) -> str:
    counted = ((outcome, len(report.with_outcome(outcome))) for outcome in CellOutcome)
    return ", ".join(f"{n:,} {WORDS[outcome]}" for outcome, n in counted if n)


def share(cell: Cell) -> str:
    """k of n, where more than one run was made."""
    return f"{cell.passed}/{cell.runs}" if cell.runs > 1 else ""


def figures(cell: Cell) -> str:
    """k of n in words, with what it says about the agent."""
    if cell.interval is None:
        return ""
    low, high = cell.interval
    text = f"{cell.passed} of {count(cell.runs, 'run')} held, 95 % interval {low:.0%} to {high:.0%}"
    return text + (f", pass^{len(cell.pass_k)} {cell.pass_k[-1]:.0%}" if len(cell.pass_k) > 1 else "")


def failing(report: ContractReport) -> Iterator[Cell]:
    """Cells that are not ok, the gravest first."""
    for outcome in _SHOWN_FIRST:
        yield from sorted(report.with_outcome(outcome), key=lambda cell: -cell.severity.points)


def fault(one: FaultCount) -> str:
    times = {0: "never fired", 1: "fired once"}.get(one.fired, f"fired {one.fired:,} times")
    return f"{one.fault}: {times}"


def telling(cell: Cell) -> list[RunEvidence]:
    """The runs that made the cell what it is; none where a fault that never fired did."""
    return [one for one in cell.evidence if one.outcome is cell.outcome]


def about(one: RunEvidence) -> list[tuple[str, str]]:
    """A run, as names and values."""
    lines = [("prompt", one.prompt), ("found", one.found)]
    if one.answer is not None:
        lines.append(("answer", one.answer))
    lines += [("call", event.excerpt or event.event) for event in one.events]
    return lines + ([("trace", one.trace)] if one.trace else [])


def remarks(report: ContractReport) -> Iterator[str]:
    if not report.traces_kept and any(cell.evidence for cell in failing(report)):
        yield "`--traces DIR` keeps what the agent did in each run, as a trace"
