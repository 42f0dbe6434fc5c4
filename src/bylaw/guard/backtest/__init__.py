"""backtest: what would these rules have done to recorded traffic?

1. `coverage`: the values that a rule needs, and those that a recording holds
2. `replay`: one guard in shadow, fed with a recording event by event
3. `backtest`: decisions, coverage and flips, counted; `open_sessions` bounds the sessions in memory
4. `shadow`: the same question of the decisions that a live guard has recorded
5. `report`: both reports for people and programs
"""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.guard.backtest.report:render_terminal",
    json="bylaw.guard.backtest.report:render_json",
    markdown="bylaw.guard.backtest.report:render_markdown",
)
