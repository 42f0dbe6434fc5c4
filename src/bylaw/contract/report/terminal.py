"""The contract's reports in a terminal: the matrix first, then the cells that are not ok, the verdict last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from bylaw.contract.model import ContractFile
from bylaw.contract.report import wording
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from bylaw.report.text import count, printable, terminal_width, wrap

LONGEST_NAME = 28
"""characters of a name in the matrix"""
LONGEST_VALUE = 240
CELLS_SHOWN = 20
RUNS_SHOWN = 2

_MARKS = {
    CellOutcome.OK: ("✓", "green"),
    CellOutcome.VIOLATED: ("✗", "red"),
    CellOutcome.NOT_APPLICABLE: ("-", None),
    CellOutcome.VACUOUS: ("∅", "yellow"),
    CellOutcome.ERROR: ("!", "magenta"),
}
_VERDICTS = {0: ("✓", "green"), 1: ("✗", "red"), 3: ("∅", "yellow"), 4: ("!", "magenta")}


def render_contract(report: ContractReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def render_validation(file: ContractFile, counts: Mapping[str, int]) -> str:
    assert file.contract is not None
    lines = wrap(f"{file.contract.name}: the contract can be run") + wrap(wording.validated_size(counts))
    return "\n".join(lines) + "\n"


def _lines(report: ContractReport) -> Iterator[str]:
    yield click.style(printable(report.contract), bold=True)
    yield from wrap(f"agent: {report.agent}", hanging="  ")
    if report.models:
        yield from wrap(f"models: {', '.join(report.models)}", hanging="  ")
    yield from (click.style(line, dim=True) for line in wrap(wording.size(report)))
    yield ""
    yield from _matrix(report)
    if varied := list(wording.variations(report)):
        yield "variations of the prompts:"
        for line in varied:
            yield from wrap(line, indent="  ", hanging="    ")
        yield ""
    failing = [] if report.stopped else list(wording.failing_cells(report))
    for cell in failing[:CELLS_SHOWN]:
        yield from _cell(cell)
    if len(failing) > CELLS_SHOWN:
        more = len(failing) - CELLS_SHOWN
        yield f"… and {count(more, 'more cell')} that {'is' if more == 1 else 'are'} not ok; the JSON report has all"
        yield ""
    for warning in report.warnings:
        yield from (click.style(line, fg="yellow") for line in wrap(f"warning: {warning}", hanging="  "))
    for remark in wording.remarks(report):
        yield from (click.style(line, dim=True) for line in wrap(f"note: {remark}", hanging="  "))
    yield from wrap(wording.outcome_counts(report), hanging="  ")
    mark, colour = _VERDICTS[report.exit_code]
    headline = wrap(f"{mark} {wording.headline(report)}", hanging="  ")
    yield from (click.style(line, fg=colour, bold=True) for line in headline)


def _matrix(report: ContractReport) -> Iterator[str]:
    """Scenarios that do not fit beside each other go below."""
    names = {one.id: _clip(printable(one.id), LONGEST_NAME) for one in report.invariants}
    first = max(map(len, names.values()), default=0)
    cells = {(cell.invariant, cell.scenario): cell for cell in report.cells}
    widths = {}
    for scenario in report.scenarios:
        texts = (_cell_text(cells[one.id, scenario]) for one in report.invariants)
        widths[scenario] = max(len(_clip(printable(scenario), LONGEST_NAME)), *map(len, texts), 1)
    for scenarios in _blocks(widths, terminal_width() - first - 12):
        heads = (_clip(printable(scenario), LONGEST_NAME).ljust(widths[scenario]) for scenario in scenarios)
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
    return f"{_MARKS[cell.outcome][0]} {wording.short_outcome(cell)}" if cell.applies else "- n/a"


def _cell(cell: Cell) -> Iterator[str]:
    mark, colour = _MARKS[cell.outcome]
    title = f"{mark} {printable(cell.invariant)}"
    about = f"{title} in {cell.scenario}: {wording.OUTCOMES[cell.outcome]} · {cell.severity.value}"
    first, *more = wrap(about, hanging="    ")
    if first.startswith(title):
        first = click.style(title, fg=colour, bold=True) + first.removeprefix(title)
    yield from (first, *more)
    if statistics := wording.statistics(cell):
        yield from (click.style(line, dim=True) for line in wrap(statistics, indent="    "))
    runs = wording.deciding_runs(cell)
    if not runs:
        yield from wrap(cell.reason, indent="    ")
    for one in cell.faults:
        yield from _field("fault", wording.describe_fault(one))
    for evidence in runs[:RUNS_SHOWN]:
        for name, value in wording.run_fields(evidence):
            yield from _field(name, value)
    if len(runs) > RUNS_SHOWN:
        yield f"    … and {count(len(runs) - RUNS_SHOWN, 'more run')} like it"
    yield ""


def _field(name: str, value: str) -> list[str]:
    return wrap(_clip(printable(value), LONGEST_VALUE), indent=f"    {name.ljust(7)} ", hanging=" " * 12)


def _clip(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
