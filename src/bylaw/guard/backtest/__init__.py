"""backtest: what would these rules have done to recorded traffic?

1. `needs`: what a recording must hold for a rule to be judged
2. `recorded`: what it did hold, session by session
3. `replay`: one guard in shadow, fed with what was recorded, event by event
4. `job`: decisions, coverage and flips, counted
5. `shadow`: the same question of a live guard's own records
"""

from __future__ import annotations
