"""The comparison for a pull request: worst first, always within a comment's size, updated in place by its marker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.diff.model import DiffReport
from bylaw.diff.report import wording
from bylaw.report.markdown import LIMIT, code, escape

MARKER = "<!-- bylaw-diff -->"
_MARKS = {0: "✅", 1: "❌", 3: "⚠️"}


def render_diff(report: DiffReport) -> str:
    """Sections are dropped from the end until it fits; what was dropped is said."""
    sections = ["\n".join(lines) for lines in _sections(report)]
    kept = len(sections)
    while len(_joined(sections, kept)) > LIMIT and kept > 1:
        kept -= 1
    return _joined(sections, kept)[:LIMIT]


def _joined(sections: Sequence[str], kept: int) -> str:
    left = len(sections) - kept
    more = [f"_{left} more sections do not fit into a comment; the JSON report has them._"] if left else []
    return "\n\n".join([*sections[:kept], *more]) + "\n"


def _sections(report: DiffReport) -> Iterator[list[str]]:
    yield [MARKER, f"### {_MARKS[report.exit_code]} Bylaw diff: {escape(wording.headline(report))}"]
    yield [f"{escape(line)}  " for line in wording.summary(report)] + [f"_{wording.size(report)}_"]
    yield from _listed("Newly broken rules", [escape(wording.change_line(c)) for c in report.policy.regressions])
    yield from _listed(
        "Rules that could not be evaluated", [escape(wording.change_line(c)) for c in report.policy.errors]
    )
    yield _axes(report)
    yield from _listed("Tool rates", [escape(wording.rate_line(rate)) for rate in report.tool_rates])
    yield from _listed("Sessions", [escape(wording.issue_line(issue)) for issue in report.sessions])
    yield from _listed("Mended rules", [escape(wording.change_line(c)) for c in report.policy.fixes])
    yield from _listed("Divergences", _divergences(report))
    yield from _listed("Decided on one side only", [escape(line) for line in report.policy.undecided])
    line = wording.fingerprint_line(report)
    notes = [escape(note) for note in (*([line] if line else []), *report.notes)]
    yield from _listed("Notes", notes)


def _axes(report: DiffReport) -> list[str]:
    ordered = sorted(report.axes, key=lambda row: -row.severity.rank)
    lines = [
        "| axis | baseline | candidate | 95 % interval of the change | changed | n | severity |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in ordered:
        figures = (wording.figure(row.axis, value) for value in (row.baseline, row.candidate))
        flagged = f" ({escape(wording.flags(row))})" if wording.flags(row) else ""
        cells = (
            row.axis,
            *figures,
            wording.interval(row),
            wording.changed(row),
            str(row.n),
            f"{row.severity}{flagged}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    below = [f"{escape(line)}  " for line in wording.under_axes(report)]
    return [*lines, "", *below] if below else lines


def _divergences(report: DiffReport) -> list[str]:
    return [
        f"{escape(wording.divergence_line(one))}\n    - before {code(one.baseline or '(no turn)')}\n"
        f"    - after {code(one.candidate or '(no turn)')}"
        for one in report.divergences
    ]


def _listed(title: str, lines: Sequence[str]) -> Iterator[list[str]]:
    if lines:
        yield [f"**{title}** ({len(lines):,})", "", *(f"- {line}" for line in lines)]
