"""The whole gate for a pull request: the summary first, then each job's report as far as a comment holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bylaw.ci.model import CiReport
from bylaw.ci.report import wording
from bylaw.report.markdown import LIMIT, escape

MARKER = "<!-- bylaw-ci -->"
_MARKS = {0: "✅", 1: "❌", 2: "❌", 3: "⚠️", 4: "🔌"}


def render_ci(report: CiReport, reports: Mapping[str, str]) -> str:
    """`reports`: the Markdown of each part that ran."""
    text = "\n".join(_summary(report))
    for name, part in reports.items():
        longer = f"{text}\n{part.rstrip()}\n"
        more = f"\n_The report of {name} does not fit into a comment; the JSON report has it._\n"
        text = longer if len(longer) <= LIMIT - 300 else text + more
    return text


def _summary(report: CiReport) -> Iterator[str]:
    yield MARKER
    yield f"### {_MARKS[report.exit_code]} Bylaw ci: {escape(wording.headline(report))}"
    yield ""
    yield "| part | score | weight | verdict |"
    yield "|---|--:|--:|---|"
    for part in report.parts:
        verdict = f"{_MARKS[part.exit_code]} {escape(part.verdict)}"
        yield f"| {part.name} | {part.score:g} | {wording.weight(part, report)} | {verdict} |"
    yield ""
    yield from (f"> left out: {escape(why)}" for why in report.left_out)
    yield ""
