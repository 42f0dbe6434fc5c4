"""The comparison for a pull request: the worst first, never longer than a comment may be.

The marker lets a later run find and update its own comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bylaw.diff.model import DiffReport
from bylaw.diff.report import wording
from bylaw.report.text import COMMENT_LIMIT, code_spans, escape_markdown, inline_code

MARKER = "<!-- bylaw-diff -->"
_MARKS = {0: "✅", 1: "❌", 2: "❌", 3: "⚠️", 4: "⚠️"}


def render_diff(report: DiffReport) -> str:
    """Sections are dropped from the end until the rest fits; a last line says how many."""
    sections = ["\n".join(lines) for lines in _sections(report)]
    shown = len(sections)
    while len(_join(sections, shown)) > COMMENT_LIMIT and shown > 1:
        shown -= 1
    return _join(sections, shown)[:COMMENT_LIMIT]


def _text(line: str) -> str:
    """Text with what stands between backticks as code, and everything else escaped."""
    return "".join(inline_code(part) if is_code else escape_markdown(part) for part, is_code in code_spans(line))


def _join(sections: Sequence[str], shown: int) -> str:
    left = len(sections) - shown
    more = [f"_{left} more sections do not fit into a comment; the JSON report has them._"] if left else []
    return "\n\n".join([*sections[:shown], *more]) + "\n"


def _sections(report: DiffReport) -> Iterator[list[str]]:
    policy = report.policy
    yield [MARKER, f"### {_MARKS[report.exit_code]} Bylaw diff: {_text(wording.headline(report))}"]
    yield [f"{_text(line)}  " for line in wording.summary(report)] + [f"_{wording.size(report)}_"]
    yield from _counted_section("Places where a rule is newly broken", wording.change_lines(policy.regressions))
    yield from _counted_section("Places where a rule could not be evaluated", wording.change_lines(policy.errors))
    yield _axes(report)
    yield from _list_section("Confirmed changes of tool calls and answers", map(wording.finding_line, report.findings))
    yield from _list_section("Rules broken in sessions", map(wording.rate_line, policy.rates))
    yield from _counted_section("Sessions", wording.session_lines(report))
    yield from _counted_section("Places where a rule is fixed", wording.change_lines(policy.fixes))
    if report.divergences:
        yield [f"**Divergences** ({report.divergence_count:,})", "", *_divergences(report)]
    yield from _list_section("Decided on one side only", policy.undecided)
    fingerprint = wording.fingerprint_line(report)
    notes = [wording.pairing_line(report), fingerprint, *report.notes]
    yield from _list_section("Notes", [note for note in notes if note])


def _list_section(title: str, lines: Iterable[str]) -> Iterator[list[str]]:
    yield from _counted_section(title, [(line, 1) for line in lines])


def _counted_section(title: str, lines: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """`lines`: each with the number of items that it stands for. The title shows their sum."""
    if lines:
        number = sum(number for _, number in lines)
        yield [f"**{title}** ({number:,})", "", *(f"- {_text(line)}" for line, _ in lines)]


def _axes(report: DiffReport) -> list[str]:
    lines = [
        "| axis | baseline | candidate | 95 % interval of the change | changed | n | severity |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in sorted((row for row in report.axes if row.n), key=lambda row: -row.severity.rank):
        before, after = (wording.figure(row.axis, value) for value in (row.baseline, row.candidate))
        flags = f" ({', '.join(wording.flags(row))})" if wording.flags(row) else ""
        cells = (
            row.axis,
            before,
            after,
            wording.interval(row),
            wording.describe_change(row),
            str(row.n),
            row.severity + flags,
        )
        lines.append(f"| {' | '.join(cells)} |")
    empty = [row.axis for row in report.axes if not row.n]
    notes = [*wording.axis_notes(report), *([f"not compared: {', '.join(empty)}"] if empty else [])]
    return [*(lines if len(lines) > 2 else ()), "", *(f"{_text(line)}  " for line in notes)]


def _divergences(report: DiffReport) -> list[str]:
    listed = wording.folded_divergences(report)
    left = report.divergence_count - sum(times for _, times in listed)
    return [
        f"- {_text(wording.divergence_line(one, times))}\n    - before {inline_code(one.baseline or '(no turn)')}\n"
        f"    - after {inline_code(one.candidate or '(no turn)')}"
        for one, times in listed
    ] + ([f"- … and {left:,} more"] if left else [])
