"""The contract in a terminal: all cells first, then those that are not ok, the verdict last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from bylaw.contract.report import wording
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from bylaw.report.text import printable

WIDTH = 110
"""scenarios that do not fit beside each other go below"""
LONGEST = 28
"""characters of a name in the matrix"""
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


def _lines(report: ContractReport) -> Iterator[str]:
    yield f"{click.style(printable(report.contract), bold=True)} · {printable(report.agent)}"
    yield click.style(f"({wording.size(report)})", dim=True)
    yield ""
    yield from _matrix(report)
    failing = [] if report.stopped else list(wording.failing(report))
    for cell in failing[:CELLS_SHOWN]:
        yield from _cell(cell)
    if len(failing) > CELLS_SHOWN:
        yield f"… and {len(failing) - CELLS_SHOWN:,} more cells that are not ok; the JSON report has them"
        yield ""
    yield from (click.style(f"warning: {printable(warning)}", fg="yellow") for warning in report.warnings)
    yield from (click.style(f"note: {printable(remark)}", dim=True) for remark in wording.remarks(report))
    yield wording.outcome_counts(report)
    mark, colour = _VERDICTS[report.exit_code]
    yield click.style(f"{mark} {printable(wording.headline(report))}", fg=colour, bold=True)


def _matrix(report: ContractReport) -> Iterator[str]:
    rows = [(one.id, _name(one.id), one.severity.value) for one in report.invariants]
    first = max((len(name) for _, name, _ in rows), default=0)
    cells = {(cell.invariant, cell.scenario): cell for cell in report.cells}
    for scenarios in _blocks(report, first + 12, cells):
        widths = [_width(report, scenario, cells) for scenario in scenarios[:-1]] + [0]
        heads = (_name(scenario).ljust(width) for scenario, width in zip(scenarios, widths, strict=True))
        yield click.style(f"{' ' * (first + 12)}{'  '.join(heads)}".rstrip(), dim=True)
        for id, name, severity in rows:
            shown = (_shown(cells[id, one], width) for one, width in zip(scenarios, widths, strict=True))
            yield f"{name.ljust(first)}  {click.style(severity.ljust(8), dim=True)}  {'  '.join(shown)}"
        yield ""


def _blocks(report: ContractReport, used: int, cells: dict[tuple[str, str], Cell]) -> Iterator[Sequence[str]]:
    block: list[str] = []
    room = WIDTH - used
    for scenario in report.scenarios:
        width = _width(report, scenario, cells) + 2
        if block and width > room:
            yield block
            block, room = [], WIDTH - used
        block.append(scenario)
        room -= width
    if block:
        yield block


def _width(report: ContractReport, scenario: str, cells: dict[tuple[str, str], Cell]) -> int:
    return max(len(_name(scenario)), *(len(_text(cells[one.id, scenario])) for one in report.invariants), 1)


def _text(cell: Cell) -> str:
    if not cell.applies:
        return "- n/a"
    share = wording.share(cell)
    return f"{_MARKS[cell.outcome][0]} {wording.WORDS[cell.outcome]}" + (f" {share}" if share else "")


def _shown(cell: Cell, width: int) -> str:
    """Padded before it is coloured: colour codes have no width."""
    return click.style(_text(cell).ljust(width), fg=_MARKS[cell.outcome][1], dim=not cell.applies)


def _name(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _cell(cell: Cell) -> Iterator[str]:
    mark, colour = _MARKS[cell.outcome]
    title = click.style(f"{mark} {printable(cell.invariant)}", fg=colour, bold=True)
    figures = click.style(f"  {wording.figures(cell)}" if cell.runs > 1 else "", dim=True)
    yield f"{title} in {printable(cell.scenario)}: {wording.WORDS[cell.outcome]} · {cell.severity.value}{figures}"
    runs = wording.telling(cell)
    if not runs:
        yield f"    {printable(cell.reason)}"
    yield from (f"    fault   {printable(wording.fault(one))}" for one in cell.faults)
    for one in runs[:RUNS_SHOWN]:
        yield from (f"    {name.ljust(7)} {_cut(printable(value))}" for name, value in wording.about(one))
    if len(runs) > RUNS_SHOWN:
        yield f"    … and {len(runs) - RUNS_SHOWN:,} more runs like it"
    yield ""


def _cut(text: str, longest: int = 240) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
