"""backtest: what would these rules have done to recorded traffic?

1. `replay`: one guard in shadow, fed with a recording event by event; values that a rule needs and a recording lacks
2. `backtest`: decisions, coverage and flips, counted, with a bounded number of open sessions; and the same question of
   the decisions that a live guard has recorded
3. `report`: both reports, and their form for people and programs
"""

from __future__ import annotations

from bylaw.report.output import Renderers

RENDERERS = Renderers(
    terminal="bylaw.guard.backtest.report:render_terminal",
    json="bylaw.guard.backtest.report:render_json",
    markdown="bylaw.guard.backtest.report:render_markdown",
)
