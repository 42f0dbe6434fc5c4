"""The reports of `bylaw contract run` and `validate`: their phrases, and a renderer for each format."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from bylaw.contract.model import ContractFile
from bylaw.contract.results import Cell, CellOutcome, ContractReport, FaultCount, RunEvidence
from bylaw.report.diagnostics import JsonStream, diagnostic_as_json, summarize
from bylaw.report.text import COMMENT_LIMIT, count, escape_markdown, inline_code, printable, terminal_width, wrap

NEVER_FIRED = "never fired"
_MARKS = {
    CellOutcome.OK: ("✓", "green", "✅"),
    CellOutcome.VIOLATED: ("✗", "red", "❌"),
    CellOutcome.NOT_APPLICABLE: ("-", None, "–"),
    CellOutcome.VACUOUS: ("∅", "yellow", "∅"),
    CellOutcome.ERROR: ("!", "magenta", "⚠️"),
}
"""the mark and its colour in a terminal, and the mark in Markdown"""
_VERDICT_MARKS = {0: ("✓", "green", "✅"), 1: ("✗", "red", "❌"), 3: ("∅", "yellow", "⚠️"), 4: ("!", "magenta", "🔌")}
"""the same for each exit code"""
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


def _name(outcome: CellOutcome) -> str:
    return outcome.value.replace("_", " ")


def _state(outcome: CellOutcome) -> str:
    return "in error" if outcome is CellOutcome.ERROR else _name(outcome)


def why_unjudged(report: ContractReport) -> list[str]:
    """The reasons why cells are in error, each once; none where the headline already gives the reason."""
    if report.stopped is not None:
        return []
    return list(dict.fromkeys(cell.reason for cell in report.with_outcome(CellOutcome.ERROR)))


def size(report: ContractReport) -> str:
    judged = {one.run for cell in report.cells for one in cell.evidence}
    compared = report.agent_runs - len(judged) if judged else 0
    parts = [
        f"{count(len(report.invariants), 'invariant')} × {count(len(report.scenarios), 'scenario')}",
        count(report.agent_runs, "run") + (f" ({compared:,} of them only for comparison)" if compared else ""),
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
        return f"{_name(cell.outcome)} (vacuous)"
    if cell.runs < 2:
        return _name(cell.outcome)
    share = f" {cell.passed}/{cell.decided}{_decided_share(cell)}" if cell.decided else ""
    return _name(cell.outcome) + share + (f", {cell.failed_unexposed} unexposed" if cell.failed_unexposed else "")


def _decided_share(cell: Cell) -> str:
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
    passed_runs: dict[str, dict[str, bool]] = {}
    breaks: dict[str, Counter[str]] = {}
    for cell in report.cells:
        for one in cell.evidence:
            if one.variation is not None:
                is_kept = one.outcome in (CellOutcome.OK, CellOutcome.VACUOUS)
                runs = passed_runs.setdefault(one.variation, {})
                runs[one.run] = runs.get(one.run, True) and is_kept
                breaks.setdefault(one.variation, Counter()).update(() if is_kept else (cell.invariant,))
    return [
        {"variation": name, "runs": len(runs), "kept": sum(runs.values()), "breaks": dict(breaks[name])}
        for name, runs in passed_runs.items()
    ]


def variations(report: ContractReport) -> Iterator[str]:
    for one in count_variations(report):
        breaks = ", ".join(f"`{id}`" + (f" {n} times" if n > 1 else "") for id, n in one["breaks"].items())
        yield f"{one['variation']}: {one['kept']} of {one['runs']} kept" + (f"; breaks {breaks}" if breaks else "")


def remarks(report: ContractReport) -> Iterator[str]:
    if any(cell.runs > 1 and cell.decided and _decided_share(cell) for cell in report.cells):
        yield "`k/n of m`: k of n runs held; in the others of the m runs no fault fired, or no rule was triggered"
    if any(cell.runs > 1 and cell.failed_unexposed for cell in report.cells):
        yield "`n unexposed`: n runs failed although no fault fired in them, so the faults are not to blame"
    assumed = dict.fromkeys(cell.invariant for cell in report.cells if cell.assumed)
    if assumed:
        names = ", ".join(f"`{name}`" for name in assumed)
        yield f"`ok (vacuous)`: nothing was shown, and `vacuous: ok` of {names} counts that as kept"
    if not report.traces_kept and any(cell.evidence for cell in failing_cells(report)):
        yield "`--traces DIR` stores a trace of each run"


# For programs


def render_json(report: ContractReport) -> str:
    document = {
        "schema": "bylaw.contract/1",
        "job": "contract",
        "exit_code": report.exit_code,
        "verdict": headline(report),
        "score": report.score,
        "min_score": report.min_score,
        "passed": report.passed,
        "contract": report.contract,
        "agent": report.agent,
        "models": list(report.models),
        "scenarios": list(report.scenarios),
        "invariants": [
            {
                "id": one.id,
                "type": one.type,
                "severity": one.severity.value,
                "when": one.when,
                "negate": one.negate,
                "vacuous": "ok" if one.vacuous_is_ok else "not_ok",
                "description": one.description,
            }
            for one in report.invariants
        ],
        "outcomes": {outcome.value: len(report.with_outcome(outcome)) for outcome in CellOutcome},
        "cells": [_json_cell(cell) for cell in report.cells],
        "variations": count_variations(report),
        "agent_runs": report.agent_runs,
        "repetitions": report.repetitions,
        "seed": report.seed,
        "warnings": list(report.warnings),
        "stopped": report.stopped,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _json_cell(cell: Cell) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(cell)
    fields["interval"] = None if cell.interval is None else [round(end, 4) for end in cell.interval]
    fields["pass_k"] = [round(figure, 4) for figure in cell.pass_k]
    return fields


def validation_json(file: ContractFile, counts: Mapping[str, int]) -> str:
    out = io.StringIO()
    diagnostics = [diagnostic_as_json(diagnostic) for diagnostic in file.diagnostics]
    JsonStream(out, "contract").end({"exit_code": 0, "diagnostics": diagnostics, **counts})
    return out.getvalue()


# In a terminal: the matrix first, then the cells that are not ok, the verdict last

_LONGEST_NAME = 28
"""characters of a name in the matrix"""
_LONGEST_VALUE = 240
_CELLS_SHOWN = 20
_RUNS_IN_TERMINAL = 2


def render_terminal(report: ContractReport) -> str:
    return "\n".join(_terminal_lines(report)) + "\n"


def validation_terminal(file: ContractFile, counts: Mapping[str, int]) -> str:
    assert file.contract is not None
    lines = wrap(f"{file.contract.name}: the contract can be run") + wrap(validated_size(counts))
    return "\n".join(lines) + "\n"


def _terminal_lines(report: ContractReport) -> Iterator[str]:
    yield click.style(printable(report.contract), bold=True)
    yield from wrap(f"agent: {report.agent}", hanging="  ")
    if report.models:
        yield from wrap(f"models: {', '.join(report.models)}", hanging="  ")
    yield from (click.style(line, dim=True) for line in wrap(size(report)))
    yield ""
    yield from _matrix(report)
    if varied := list(variations(report)):
        yield "variations of the prompts:"
        for line in varied:
            yield from wrap(line, indent="  ", hanging="    ")
        yield ""
    failing = [] if report.stopped else list(failing_cells(report))
    for cell in failing[:_CELLS_SHOWN]:
        yield from _terminal_cell(cell)
    if len(failing) > _CELLS_SHOWN:
        more = len(failing) - _CELLS_SHOWN
        yield f"… and {count(more, 'more cell')} that {'is' if more == 1 else 'are'} not ok; the JSON report has all"
        yield ""
    for warning in report.warnings:
        yield from (click.style(line, fg="yellow") for line in wrap(f"warning: {warning}", hanging="  "))
    for remark in remarks(report):
        yield from (click.style(line, dim=True) for line in wrap(f"note: {remark}", hanging="  "))
    yield from wrap(outcome_counts(report), hanging="  ")
    mark, colour, _ = _VERDICT_MARKS[report.exit_code]
    verdict = wrap(f"{mark} {headline(report)}", hanging="  ")
    yield from (click.style(line, fg=colour, bold=True) for line in verdict)


def _matrix(report: ContractReport) -> Iterator[str]:
    """Scenarios that do not fit beside each other go below."""
    names = {one.id: _clip(printable(one.id), _LONGEST_NAME) for one in report.invariants}
    first = max(map(len, names.values()), default=0)
    cells = {(cell.invariant, cell.scenario): cell for cell in report.cells}
    widths = {}
    for scenario in report.scenarios:
        texts = (_cell_text(cells[one.id, scenario]) for one in report.invariants)
        widths[scenario] = max(len(_clip(printable(scenario), _LONGEST_NAME)), *map(len, texts), 1)
    for scenarios in _blocks(widths, terminal_width() - first - 12):
        heads = (_clip(printable(scenario), _LONGEST_NAME).ljust(widths[scenario]) for scenario in scenarios)
        yield click.style(f"{' ' * (first + 12)}{'  '.join(heads)}".rstrip(), dim=True)
        for one in report.invariants:
            severity = click.style(one.severity.value.ljust(8), dim=True)
            shown = []
            for scenario in scenarios:
                cell = cells[one.id, scenario]
                # padded before it is coloured: colour codes have no width
                text = _cell_text(cell).ljust(0 if scenario == scenarios[-1] else widths[scenario])
                shown.append(click.style(text, fg=_MARKS[cell.outcome][1], dim=not cell.applies))
            yield f"{names[one.id].ljust(first)}  {severity}  {'  '.join(shown)}"
        yield ""


def _blocks(widths: Mapping[str, int], room: int) -> Iterator[Sequence[str]]:
    """The scenarios in groups that fit beside each other."""
    block: list[str] = []
    used = 0
    for scenario, width in widths.items():
        if block and used + width > room:
            yield block
            block, used = [], 0
        block.append(scenario)
        used += width + 2
    if block:
        yield block


def _cell_text(cell: Cell) -> str:
    return f"{_MARKS[cell.outcome][0]} {short_outcome(cell)}" if cell.applies else "- n/a"


def _terminal_cell(cell: Cell) -> Iterator[str]:
    mark, colour, _ = _MARKS[cell.outcome]
    title = f"{mark} {printable(cell.invariant)}"
    about = f"{title} in {cell.scenario}: {_name(cell.outcome)} · {cell.severity.value}"
    first, *more = wrap(about, hanging="    ")
    if first.startswith(title):
        first = click.style(title, fg=colour, bold=True) + first.removeprefix(title)
    yield from (first, *more)
    if shares := statistics(cell):
        yield from (click.style(line, dim=True) for line in wrap(shares, indent="    "))
    runs = deciding_runs(cell)
    if not runs:
        yield from wrap(cell.reason, indent="    ")
    for one in cell.faults:
        yield from _field("fault", describe_fault(one))
    for evidence in runs[:_RUNS_IN_TERMINAL]:
        for name, value in run_fields(evidence):
            yield from _field(name, value)
    if len(runs) > _RUNS_IN_TERMINAL:
        yield f"    … and {count(len(runs) - _RUNS_IN_TERMINAL, 'more run')} like it"
    yield ""


def _field(name: str, value: str) -> list[str]:
    return wrap(_clip(printable(value), _LONGEST_VALUE), indent=f"    {name.ljust(7)} ", hanging=" " * 12)


def _clip(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


# For a pull request: it fits into a comment, which is updated in place by its marker

_MARKER = "<!-- bylaw-contract -->"
_RUNS_IN_MARKDOWN = 3


def render_markdown(report: ContractReport) -> str:
    """Cells are dropped from the end until the report fits; it says how many."""
    head, tail = "\n".join(_head(report)), "\n".join(_tail(report))
    cells, room, dropped = [], COMMENT_LIMIT - len(head) - len(tail) - 200, 0
    for cell in () if report.stopped else failing_cells(report):
        text = "\n".join(_markdown_cell(cell))
        if dropped or len(text) > room:
            dropped += 1
            continue
        cells.append(text)
        room -= len(text) + 2
    more = [f"_{dropped} more cells do not fit into a comment; the JSON report has them._"] if dropped else []
    return "\n\n".join(part for part in (head, *cells, *more, tail) if part)[:COMMENT_LIMIT] + "\n"


def validation_markdown(file: ContractFile, counts: Mapping[str, int]) -> str:
    assert file.contract is not None
    lines = [f"{escape_markdown(file.contract.name)}: the contract can be run", "", validated_size(counts)]
    warnings = [f"> {escape_markdown(summarize(one))}" for one in file.diagnostics]
    return "\n".join([*lines, *([""] if warnings else []), *warnings]) + "\n"


def _head(report: ContractReport) -> Iterator[str]:
    yield _MARKER
    yield f"### {_VERDICT_MARKS[report.exit_code][2]} Bylaw contract: {escape_markdown(headline(report))}"
    yield ""
    yield f"{inline_code(report.contract)} · {inline_code(report.agent)} · {size(report)}"
    yield ""
    yield f"| invariant | severity | {' | '.join(escape_markdown(name) for name in report.scenarios)} |"
    yield "|---|---|" + "---|" * len(report.scenarios)
    cells = {(cell.invariant, cell.scenario): cell for cell in report.cells}
    for one in report.invariants:
        row = (cells[one.id, scenario] for scenario in report.scenarios)
        outcomes = " | ".join(f"{_MARKS[cell.outcome][2]} {short_outcome(cell)}" for cell in row)
        yield f"| {escape_markdown(one.id)} | {one.severity.value} | {outcomes} |"


def _markdown_cell(cell: Cell) -> Iterator[str]:
    shares = statistics(cell)
    title = f"{escape_markdown(cell.invariant)} in {escape_markdown(cell.scenario)}"
    about = f"{_name(cell.outcome)} · {cell.severity.value}"
    yield f"**{title}**: {about}" + (f" · {shares}" if shares else "")
    yield ""
    runs = deciding_runs(cell)
    if not runs:
        yield f"- {escape_markdown(cell.reason)}"
    yield from (f"- fault {escape_markdown(describe_fault(one))}" for one in cell.faults)
    for evidence in runs[:_RUNS_IN_MARKDOWN]:
        (_, prompt), *rest = run_fields(evidence)
        yield f"- prompt {inline_code(prompt)}"
        for name, value in rest:
            yield f"    - {name} {escape_markdown(value) if name == 'found' else inline_code(value)}"


def _tail(report: ContractReport) -> Iterator[str]:
    yield from (f"- variation {escape_markdown(line)}" for line in variations(report))
    yield from (f"> {escape_markdown(warning)}" for warning in report.warnings)
    yield from (f"> {escape_markdown(remark)}" for remark in remarks(report))
