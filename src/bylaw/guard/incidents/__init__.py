"""follow: what do the rules say of what was recorded? The same rules, over the event log, after the fact.

1. `recorded`: one row of the log → when it happened, and what it was
2. `fold`: the rules of a guard over the rows of one session, in order → what they find; `unwritten` says of which rules
   that cannot be known, and `then` what the guard said of them at the time
3. `sessions`: rows as they arrive, late and twice → what one ordered fold finds, exactly; `memory` keeps what the rules
   remember of each
4. `raising`: findings → incidents, alerts, notifications, in one transaction with the position in the log
5. `correlator`: the log in batches, each followed once; `replay` does the same apart, from the beginning
6. `incidents`: what people do with an incident
7. `reminders` and `courier`: reviews that wait, and the delivery of notifications; `loop` is all of it, continuously
"""

from __future__ import annotations
