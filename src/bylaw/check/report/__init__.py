"""The report of `bylaw check`, one renderer a file."""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.check.report.terminal:render_check",
    json="bylaw.check.report.json:render_check",
    markdown="bylaw.check.report.markdown:render_check",
)
