"""The comparison as people read it in a terminal: the whole report first, the verdict last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from bylaw.diff.model import AxisRow, Change, DiffReport
from bylaw.diff.report import wording
from bylaw.report.text import code_spans, count, terminal_width, wrap

_COLOURS = {Change.NONE: None, Change.MINOR: "cyan", Change.MODERATE: "yellow", Change.SEVERE: "red"}
_VERDICTS = {0: ("✓", "green"), 1: ("✗", "red"), 2: ("✗", "red"), 3: ("∅", "yellow"), 4: ("∅", "yellow")}
MOST_LISTED = 10


def render_diff(report: DiffReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: DiffReport) -> Iterator[str]:
    for line in wording.summary(report):
        yield from wrap(_strip_backticks(line), hanging="  ")
    yield from _dim(f"({wording.size(report)})")
    if pairing := wording.pairing_line(report):
        yield from _dim(pairing)
    yield ""
    yield from _axes(report)
    findings = [_strip_backticks(wording.finding_line(one)) for one in report.findings]
    yield from _section("confirmed changes of tool calls and answers", findings)
    yield from _divergences(report)
    yield from _policy(report)
    yield from _counted_section("sessions", wording.session_lines(report))
    fingerprint = wording.fingerprint_line(report)
    if fingerprint:
        yield from wrap(fingerprint, hanging="  ")
    for note in report.notes:
        yield from _dim(f"note: {note}")
    mark, colour = _VERDICTS[report.exit_code]
    yield ""
    for line in wrap(_strip_backticks(f"{mark} {wording.headline(report)}"), hanging="  "):
        yield click.style(line, fg=colour, bold=True)


def _axes(report: DiffReport) -> Iterator[str]:
    """A table of the axes that were recorded. Columns are left out where it is wider than the terminal."""
    recorded = [row for row in report.axes if row.n]
    table = {
        "axis": [row.axis for row in recorded],
        "baseline": [wording.figure(row.axis, row.baseline) for row in recorded],
        "candidate": [wording.figure(row.axis, row.candidate) for row in recorded],
        "delta": [wording.figure(row.axis, row.delta, unit=False) for row in recorded],
        "95 % interval": [wording.interval(row) for row in recorded],
        "changed": [wording.describe_change(row) for row in recorded],
        "n": [str(row.n) for row in recorded],
        "severity": [row.severity.value for row in recorded],
    }
    widths = {head: max(map(len, (head, *cells))) for head, cells in table.items()}
    for head in ("delta", "changed", "95 % interval"):
        if sum(widths.values()) + 2 * (len(widths) - 1) > terminal_width():
            del widths[head]
    if recorded:
        yield click.style(_row({head: head for head in table}, widths), dim=True)
    for number, axis in enumerate(recorded):
        cells = {head: column[number] for head, column in table.items()}
        yield click.style(_row(cells, widths), fg=_COLOURS[axis.severity])
    for line in (*wording.axis_notes(report), *_flags(report.axes)):
        yield from _dim(line)
    yield ""


def _row(cells: dict[str, str], widths: dict[str, int]) -> str:
    padded = (
        cells[head].ljust(width) if head in ("axis", "severity") else cells[head].rjust(width)
        for head, width in widths.items()
    )
    return "  ".join(padded).rstrip()


def _flags(rows: Sequence[AxisRow]) -> Iterator[str]:
    flags = dict.fromkeys(flag for row in rows for flag in wording.flags(row))
    yield from (f"{flag}: {', '.join(row.axis for row in rows if flag in wording.flags(row))}" for flag in flags)


def _divergences(report: DiffReport) -> Iterator[str]:
    if not report.divergences:
        return
    yield f"divergences ({report.divergence_count:,}):"
    listed = wording.folded_divergences(report)[:MOST_LISTED]
    for one, times in listed:
        yield from wrap(wording.divergence_line(one, times), indent="  ", hanging="    ")
        for mark, quote, colour in (("-", one.baseline, "red"), ("+", one.candidate, "green")):
            for line in wrap(quote or "(no turn)", indent=f"    {mark} ", hanging="      "):
                yield click.style(line, fg=colour)
    if left := report.divergence_count - sum(times for _, times in listed):
        yield f"  … and {left:,} more"
    yield ""


def _policy(report: DiffReport) -> Iterator[str]:
    policy = report.policy
    yield from _section("rules broken in sessions", [wording.rate_line(rate) for rate in policy.rates])
    yield from _counted_section("places where a rule is newly broken", wording.change_lines(policy.regressions))
    yield from _counted_section("places where a rule is fixed", wording.change_lines(policy.fixes))
    yield from _counted_section("places where a rule could not be evaluated", wording.change_lines(policy.errors))
    yield from _section("decided on one side only", policy.undecided)
    if report.rules and not (policy.regressions or policy.fixes or policy.errors):
        yield f"policy: no rule newly broken or fixed ({count(report.rules, 'rule')})"
        yield ""


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield from _counted_section(title, [(line, 1) for line in lines])


def _counted_section(title: str, lines: Sequence[tuple[str, int]]) -> Iterator[str]:
    """`lines`: each with the number of items that it stands for. The title shows their sum."""
    if lines:
        yield f"{title} ({sum(number for _, number in lines):,}):"
        for line, _ in lines[:MOST_LISTED]:
            yield from wrap(line, indent="  ", hanging="    ")
        if left := sum(number for _, number in lines[MOST_LISTED:]):
            yield f"  … and {left:,} more"
        yield ""


def _strip_backticks(line: str) -> str:
    """Names without the backticks that make them code in Markdown."""
    return "".join(part for part, _ in code_spans(line))


def _dim(text: str) -> Iterator[str]:
    yield from (click.style(line, dim=True) for line in wrap(text, hanging="  "))
