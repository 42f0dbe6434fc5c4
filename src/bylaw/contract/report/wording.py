"""Phrases about a contract that the formats for people share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bylaw.contract.results import Cell, CellOutcome, ContractReport, FaultCount, RunEvidence
from bylaw.report.text import count

NEVER_FIRED = "never fired"
OUTCOMES = {
    CellOutcome.OK: "ok",
    CellOutcome.VIOLATED: "violated",
    CellOutcome.NOT_APPLICABLE: "not applicable",
    CellOutcome.VACUOUS: "vacuous",
    CellOutcome.ERROR: "error",
}
_FAILURES = (CellOutcome.VIOLATED, CellOutcome.ERROR, CellOutcome.VACUOUS)
"""the outcomes of cells that are not ok, the worst first"""


def headline(report: ContractReport) -> str:
    """The verdict in one line; it agrees with the exit code."""
    score, required = f"score {report.score:g}", f"{report.min_score:g} required"
    failures = [f"{count(n, 'cell')} {_state(outcome)}" for outcome, n in _count_cells(report, _FAILURES)]
    cells = ", ".join(failures)
    match report.exit_code:
        case 0 if report.score == 100:
            return f"PASSED: score 100, {count(len(report.applicable), 'cell')} ok"
        case 0:
            return f"PASSED: {score}, {required}; {cells}"
        case 1 if report.critical:
            broken = list(dict.fromkeys(cell.invariant for cell in report.critical))
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            return f"FAILED: critical invariant `{broken[0]}`{more} violated, {score}; {cells}"
        case 1:
            return f"FAILED: {score}, {required}; {cells}"
        case 3 if not report.applicable:
            return "NOTHING CHECKED: no invariant applies in any scenario"
        case 3 if not cells:
            return f"NOT SHOWN: {score}, but every cell is kept only because of `vacuous: ok`"
        case 3:
            return f"NOT SHOWN: {score}, {required}; {cells}"
        case _:
            return f"OUT OF REACH: {report.stopped or f'{score}; {cells}'}"


def outcome_counts(report: ContractReport) -> str:
    counts = (f"{n:,} {_state(outcome)}" for outcome, n in _count_cells(report, tuple(CellOutcome)))
    return f"{count(len(report.cells), 'cell')}: {', '.join(counts)}"


def _count_cells(report: ContractReport, outcomes: tuple[CellOutcome, ...]) -> Iterator[tuple[CellOutcome, int]]:
    for outcome in outcomes:
        if n := len(report.with_outcome(outcome)):
            yield outcome, n


def _state(outcome: CellOutcome) -> str:
    return "in error" if outcome is CellOutcome.ERROR else OUTCOMES[outcome]


def why_unjudged(report: ContractReport) -> list[str]:
    """The reasons why cells are in error, each once; none where the headline already gives the reason."""
    if report.stopped is not None:
        return []
    return list(dict.fromkeys(cell.reason for cell in report.with_outcome(CellOutcome.ERROR)))


def size(report: ContractReport) -> str:
    parts = [
        f"{count(len(report.invariants), 'invariant')} × {count(len(report.scenarios), 'scenario')}",
        count(report.agent_runs, "run"),
        *([f"{report.repetitions} repetitions"] if report.repetitions > 1 else []),
        f"seed {report.seed}",
    ]
    return ", ".join(parts)


def validated_size(counts: Mapping[str, int]) -> str:
    """`counts`: as `runs.count_parts` gives them."""
    return (
        f"{count(counts['invariants'], 'invariant')} × {count(counts['scenarios'], 'scenario')} = "
        f"{count(counts['applicable_cells'], 'applicable cell')}, {count(counts['faults'], 'fault')}, "
        f"{count(counts['agent_runs'], 'run')} of the agent"
    )


def short_outcome(cell: Cell) -> str:
    """The outcome; where there are several runs, how many passed of those that show something."""
    if cell.assumed:
        return f"{OUTCOMES[cell.outcome]} (vacuous)"
    if cell.runs < 2:
        return OUTCOMES[cell.outcome]
    share = f" {cell.passed}/{cell.decided}{_of_all(cell)}" if cell.decided else ""
    return OUTCOMES[cell.outcome] + share + (f", {cell.failed_unexposed} unexposed" if cell.failed_unexposed else "")


def _of_all(cell: Cell) -> str:
    return f" of {cell.runs}" if cell.decided < cell.runs else ""


def statistics(cell: Cell) -> str:
    """How many of several runs passed, and what that says about the agent."""
    if cell.runs < 2:
        return ""
    parts = []
    if cell.interval is not None:
        low, high = cell.interval
        held = f"{cell.passed} of {count(cell.decided, 'run')} held, 95 % interval {low:.0%} to {high:.0%}"
        parts = [held + (f", pass^{len(cell.pass_k)} {cell.pass_k[-1]:.0%}" if len(cell.pass_k) > 1 else "")]
    if cell.failed_unexposed:
        parts.append(f"{count(cell.failed_unexposed, 'run')} failed in which no fault fired")
    idle = cell.runs - cell.decided - cell.failed_unexposed
    return "; ".join([*parts, *([f"{count(idle, 'more run')} showed nothing"] if parts and idle else [])])


def failing_cells(report: ContractReport) -> Iterator[Cell]:
    """Cells that are not ok, the worst first."""
    for outcome in _FAILURES:
        yield from sorted(report.with_outcome(outcome), key=lambda cell: -cell.severity.points)


def describe_fault(one: FaultCount) -> str:
    times = {0: "never fired", 1: "fired once"}.get(one.fired, f"fired {one.fired:,} times")
    return f"{one.fault}: {times}"


def deciding_runs(cell: Cell) -> list[RunEvidence]:
    """The runs that have the outcome of the cell; none where a fault that never fired decided it."""
    if cell.outcome is CellOutcome.VACUOUS and cell.reason.startswith(NEVER_FIRED):
        return []
    return [one for one in cell.evidence if one.outcome is cell.outcome]


def run_fields(one: RunEvidence) -> list[tuple[str, str]]:
    """A run as names and values."""
    prompt = ("prompt", one.prompt) if one.variation is None else ("varied", f"{one.variation}: {one.prompt}")
    lines = [prompt, ("found", one.found)]
    if one.answer is not None:
        lines.append(("answer", one.answer))
    lines += [("call", event.excerpt or event.event) for event in one.events]
    return lines + ([("trace", one.trace)] if one.trace else [])


def count_variations(report: ContractReport) -> list[dict[str, Any]]:
    """For each kind of variation, how many of its runs kept every invariant, and how often it broke which ones."""
    kept: dict[str, dict[str, bool]] = {}
    breaks: dict[str, Counter[str]] = {}
    for cell in report.cells:
        for one in cell.evidence:
            if one.variation is not None:
                is_kept = one.outcome in (CellOutcome.OK, CellOutcome.VACUOUS)
                runs = kept.setdefault(one.variation, {})
                runs[one.run] = runs.get(one.run, True) and is_kept
                breaks.setdefault(one.variation, Counter()).update(() if is_kept else (cell.invariant,))
    return [
        {"variation": name, "runs": len(runs), "kept": sum(runs.values()), "breaks": dict(breaks[name])}
        for name, runs in kept.items()
    ]


def variations(report: ContractReport) -> Iterator[str]:
    for one in count_variations(report):
        breaks = ", ".join(f"`{id}`" + (f" {n} times" if n > 1 else "") for id, n in one["breaks"].items())
        yield f"{one['variation']}: {one['kept']} of {one['runs']} kept" + (f"; breaks {breaks}" if breaks else "")


def remarks(report: ContractReport) -> Iterator[str]:
    if any(cell.runs > 1 and cell.decided and _of_all(cell) for cell in report.cells):
        yield "`k/n of m`: k of n runs held; in the others of the m runs no fault fired, or no rule was triggered"
    if any(cell.runs > 1 and cell.failed_unexposed for cell in report.cells):
        yield "`n unexposed`: n runs failed although no fault fired in them, so the faults are not to blame"
    assumed = dict.fromkeys(cell.invariant for cell in report.cells if cell.assumed)
    if assumed:
        names = ", ".join(f"`{name}`" for name in assumed)
        yield f"`ok (vacuous)`: nothing was shown, and `vacuous: ok` of {names} counts that as kept"
    if not report.traces_kept and any(cell.evidence for cell in failing_cells(report)):
        yield "`--traces DIR` stores a trace of each run"
