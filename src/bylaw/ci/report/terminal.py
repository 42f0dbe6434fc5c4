"""The whole gate in a terminal: each job's report, then one line a job, then the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from bylaw.ci.model import CiReport
from bylaw.ci.report import wording
from bylaw.report.text import printable

_MARKS = {0: ("✓", "green"), 1: ("✗", "red"), 2: ("✗", "red"), 3: ("∅", "yellow"), 4: ("!", "magenta")}


def render_ci(report: CiReport, reports: Mapping[str, str]) -> str:
    """`reports`: the text of each part that ran."""
    return "\n".join(_lines(report, reports)) + "\n"


def _lines(report: CiReport, reports: Mapping[str, str]) -> Iterator[str]:
    for name, text in reports.items():
        yield click.style(f"── {name} ", bold=True) + click.style("─" * 60, dim=True)
        yield text
    yield click.style(f"{'part':<10}{'score':>7}{'weight':>8}  verdict", dim=True)
    for part in report.parts:
        mark, colour = _MARKS[part.exit_code]
        verdict = click.style(f"{mark} {printable(part.verdict)}", fg=colour)
        yield f"{part.name:<10}{part.score:>7g}{wording.weight(part, report):>8}  {verdict}"
    yield from (click.style(f"left out: {printable(why)}", dim=True) for why in report.left_out)
    yield ""
    mark, colour = _MARKS[report.exit_code]
    yield click.style(f"{mark} {wording.headline(report)}", fg=colour, bold=True)
