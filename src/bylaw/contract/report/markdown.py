"""The contract's reports for a pull request: they fit into a comment, which is updated in place by its marker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bylaw.contract.model import ContractFile
from bylaw.contract.report import wording
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from bylaw.report.diagnostics import summarize
from bylaw.report.text import COMMENT_LIMIT, escape_markdown, inline_code

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
    """Cells are dropped from the end until the report fits; it says how many."""
    head, tail = "\n".join(_head(report)), "\n".join(_tail(report))
    cells, room, dropped = [], COMMENT_LIMIT - len(head) - len(tail) - 200, 0
    for cell in () if report.stopped else wording.failing_cells(report):
        text = "\n".join(_cell(cell))
        if dropped or len(text) > room:
            dropped += 1
            continue
        cells.append(text)
        room -= len(text) + 2
    more = [f"_{dropped} more cells do not fit into a comment; the JSON report has them._"] if dropped else []
    return "\n\n".join(part for part in (head, *cells, *more, tail) if part)[:COMMENT_LIMIT] + "\n"


def render_validation(file: ContractFile, counts: Mapping[str, int]) -> str:
    assert file.contract is not None
    lines = [f"{escape_markdown(file.contract.name)}: the contract can be run", "", wording.validated_size(counts)]
    warnings = [f"> {escape_markdown(summarize(one))}" for one in file.diagnostics]
    return "\n".join([*lines, *([""] if warnings else []), *warnings]) + "\n"


def _head(report: ContractReport) -> Iterator[str]:
    yield MARKER
    yield f"### {_VERDICTS[report.exit_code]} Bylaw contract: {escape_markdown(wording.headline(report))}"
    yield ""
    yield f"{inline_code(report.contract)} · {inline_code(report.agent)} · {wording.size(report)}"
    yield ""
    yield f"| invariant | severity | {' | '.join(escape_markdown(name) for name in report.scenarios)} |"
    yield "|---|---|" + "---|" * len(report.scenarios)
    cells = {(cell.invariant, cell.scenario): cell for cell in report.cells}
    for one in report.invariants:
        row = (cells[one.id, scenario] for scenario in report.scenarios)
        outcomes = " | ".join(f"{_MARKS[cell.outcome]} {wording.short_outcome(cell)}" for cell in row)
        yield f"| {escape_markdown(one.id)} | {one.severity.value} | {outcomes} |"


def _cell(cell: Cell) -> Iterator[str]:
    statistics = wording.statistics(cell)
    title = f"{escape_markdown(cell.invariant)} in {escape_markdown(cell.scenario)}"
    about = f"{wording.OUTCOMES[cell.outcome]} · {cell.severity.value}"
    yield f"**{title}**: {about}" + (f" · {statistics}" if statistics else "")
    yield ""
    runs = wording.deciding_runs(cell)
    if not runs:
        yield f"- {escape_markdown(cell.reason)}"
    yield from (f"- fault {escape_markdown(wording.describe_fault(one))}" for one in cell.faults)
    for evidence in runs[:RUNS_SHOWN]:
        (_, prompt), *rest = wording.run_fields(evidence)
        yield f"- prompt {inline_code(prompt)}"
        for name, value in rest:
            yield f"    - {name} {escape_markdown(value) if name == 'found' else inline_code(value)}"


def _tail(report: ContractReport) -> Iterator[str]:
    yield from (f"- variation {escape_markdown(line)}" for line in wording.variations(report))
    yield from (f"> {escape_markdown(warning)}" for warning in report.warnings)
    yield from (f"> {escape_markdown(remark)}" for remark in wording.remarks(report))
