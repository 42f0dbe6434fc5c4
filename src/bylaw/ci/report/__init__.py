"""The report of `bylaw ci`, one renderer a file."""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.ci.report.terminal:render_ci",
    json="bylaw.ci.report.json:render_ci",
    markdown="bylaw.ci.report.markdown:render_ci",
)
