"""The comparison as people read it in a terminal: the whole report first, the gate last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from bylaw.diff.model import Change, DiffReport
from bylaw.diff.report import wording
from bylaw.report.text import printable

_COLOURS = {Change.NONE: None, Change.MINOR: "cyan", Change.MODERATE: "yellow", Change.SEVERE: "red"}
_GATE = {0: ("✓", "green"), 1: ("✗", "red"), 3: ("∅", "yellow")}
SHOWN = 10


def render_diff(report: DiffReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: DiffReport) -> Iterator[str]:
    yield from (printable(line) for line in wording.summary(report))
    yield click.style(f"({wording.size(report)})", dim=True)
    yield ""
    yield from _axes(report)
    yield from _section("tool rates", [wording.rate_line(rate) for rate in report.tool_rates])
    yield from _divergences(report)
    yield from _policy(report)
    yield from _section("sessions", [wording.issue_line(issue) for issue in report.sessions])
    line = wording.fingerprint_line(report)
    if line:
        yield line
    yield from (click.style(f"note: {printable(note)}", dim=True) for note in report.notes)
    mark, colour = _GATE[report.exit_code]
    yield ""
    yield click.style(f"{mark} {wording.headline(report)}", fg=colour, bold=True)


def _axes(report: DiffReport) -> Iterator[str]:
    head = ("axis", "baseline", "candidate", "delta", "95 % interval", "changed", "n", "severity", "")
    rows = [
        (
            row.axis,
            wording.figure(row.axis, row.baseline),
            wording.figure(row.axis, row.candidate),
            wording.figure(row.axis, row.delta),
            wording.interval(row),
            wording.changed(row),
            str(row.n),
            row.severity.value,
            wording.flags(row),
        )
        for row in report.axes
    ]
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    yield click.style(_columns(head, widths), dim=True)
    for axis, cells in zip(report.axes, rows, strict=True):
        yield click.style(_columns(cells, widths), fg=_COLOURS[axis.severity])
    yield from (click.style(line, dim=True) for line in wording.under_axes(report))
    yield ""


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = {0, 7, 8}
    padded = (c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
    return "  ".join(padded).rstrip()


def _divergences(report: DiffReport) -> Iterator[str]:
    if not report.divergences:
        return
    yield f"divergences ({report.divergence_count:,}):"
    for one in report.divergences[:SHOWN]:
        yield f"  {printable(wording.divergence_line(one))}"
        yield click.style(f"    - {printable(one.baseline or '(no turn)')}", fg="red")
        yield click.style(f"    + {printable(one.candidate or '(no turn)')}", fg="green")
    yield ""


def _policy(report: DiffReport) -> Iterator[str]:
    policy = report.policy
    yield from _section("newly broken", [wording.change_line(change) for change in policy.regressions])
    yield from _section("mended", [wording.change_line(change) for change in policy.fixes])
    yield from _section("could not be evaluated", [wording.change_line(change) for change in policy.errors])
    yield from _section("decided on one side only", list(policy.undecided))
    if report.rules and not (policy.regressions or policy.fixes or policy.errors):
        yield f"policy: no rule broken or mended ({report.rules} rules)"
        yield ""


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title} ({len(lines):,}):"
        yield from (f"  {printable(line)}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"  … and {len(lines) - SHOWN:,} more"
        yield ""
