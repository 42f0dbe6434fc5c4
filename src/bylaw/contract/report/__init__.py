"""The reports of `bylaw contract run` and `validate`, one format a file."""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.contract.report.terminal:render_contract",
    json="bylaw.contract.report.json:render_contract",
    markdown="bylaw.contract.report.markdown:render_contract",
)
VALIDATION_RENDERERS = Renderers(
    terminal="bylaw.contract.report.terminal:render_validation",
    json="bylaw.contract.report.json:render_validation",
    markdown="bylaw.contract.report.markdown:render_validation",
)
