"""The contract's matrix for a pull request: always within a comment's size, updated in place by its marker."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.contract.report import wording
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from bylaw.report.markdown import LIMIT, code, escape

MARKER = "<!-- bylaw-contract -->"
RUNS_SHOWN = 3
_VERDICTS = {0: "✅", 1: "❌", 3: "⚠️", 4: "🔌"}
_MARKS = {
    CellOutcome.OK: "✅",
    CellOutcome.VIOLATED: "❌",
    CellOutcome.NOT_APPLICABLE: "–",
    CellOutcome.VACUOUS: "∅",
    CellOutcome.ERROR: "⚠️",
}


def render_contract(report: ContractReport) -> str:
    """Cells are dropped from the end until it fits; what was dropped is said."""
    head, tail = "\n".join(_head(report)), "\n".join(_tail(report))
    kept, room, left = [], LIMIT - len(head) - len(tail) - 200, 0
    for cell in () if report.stopped else wording.failing(report):
        text = "\n".join(_cell(cell))
        if left or len(text) > room:
            left += 1
            continue
        kept.append(text)
        room -= len(text) + 2
    more = [f"_{left} more cells do not fit into a comment; the JSON report has them._"] if left else []
    return "\n\n".join(part for part in (head, *kept, *more, tail) if part)[:LIMIT] + "\n"


def _head(report: ContractReport) -> Iterator[str]:
    yield MARKER
    yield f"### {_VERDICTS[report.exit_code]} Bylaw contract: {escape(wording.headline(report))}"
    yield ""
    yield f"{code(report.contract)} · {code(report.agent)} · {wording.size(report)}"
    yield ""
    yield f"| invariant | severity | {' | '.join(escape(name) for name in report.scenarios)} |"
    yield "|---|---|" + "---|" * len(report.scenarios)
    cells = {(cell.invariant, cell.scenario): cell for cell in report.cells}
    for one in report.invariants:
        row = (_short(cells[one.id, scenario]) for scenario in report.scenarios)
        yield f"| {escape(one.id)} | {one.severity.value} | {' | '.join(row)} |"


def _short(cell: Cell) -> str:
    share = wording.share(cell)
    return f"{_MARKS[cell.outcome]} {wording.WORDS[cell.outcome]}" + (f" {share}" if share else "")


def _cell(cell: Cell) -> Iterator[str]:
    figures = f" · {wording.figures(cell)}" if cell.runs > 1 else ""
    title = f"{escape(cell.invariant)} in {escape(cell.scenario)}"
    yield f"**{title}**: {wording.WORDS[cell.outcome]} · {cell.severity.value}{figures}"
    yield ""
    if not wording.telling(cell):
        yield f"- {escape(cell.reason)}"
    yield from (f"- fault {escape(wording.fault(one))}" for one in cell.faults)
    for evidence in wording.telling(cell)[:RUNS_SHOWN]:
        (_, prompt), *rest = wording.about(evidence)
        yield f"- prompt {code(prompt)}"
        yield from (f"    - {name} {code(value) if name != 'found' else escape(value)}" for name, value in rest)


def _tail(report: ContractReport) -> Iterator[str]:
    yield from (f"> {escape(warning)}" for warning in report.warnings)
    yield from (f"> {escape(remark)}" for remark in wording.remarks(report))
