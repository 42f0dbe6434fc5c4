"""The report of `bylaw diff`, one renderer a file."""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.diff.report.terminal:render_diff",
    json="bylaw.diff.report.json:render_diff",
    markdown="bylaw.diff.report.markdown:render_diff",
)
