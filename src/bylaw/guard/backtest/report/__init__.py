"""The reports of `bylaw guard backtest` and `bylaw guard shadow`, one file a format."""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.guard.backtest.report.terminal:render_backtest",
    json="bylaw.guard.backtest.report.json:render_backtest",
    markdown="bylaw.guard.backtest.report.markdown:render_backtest",
)
