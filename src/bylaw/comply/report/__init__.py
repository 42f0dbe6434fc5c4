"""The reports of `bylaw comply`, `comply rules` and `comply diff`, one file a format."""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.comply.report.terminal:render_comply",
    json="bylaw.comply.report.json:render_comply",
    markdown="bylaw.comply.report.markdown:render_comply",
)

RULES_RENDERERS = Renderers(
    terminal="bylaw.comply.report.terminal:render_rules",
    json="bylaw.comply.report.json:render_rules",
    markdown="bylaw.comply.report.markdown:render_rules",
)

DIFF_RENDERERS = Renderers(
    terminal="bylaw.comply.report.terminal:render_diff",
    json="bylaw.comply.report.json:render_diff",
    markdown="bylaw.comply.report.markdown:render_diff",
)
