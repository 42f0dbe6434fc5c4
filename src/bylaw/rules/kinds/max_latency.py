"""Each response takes at most `limit` milliseconds; with `per: scope`, all of them together.

Vacuous when no turn matches `when`. Inconclusive when the latency of a turn was not recorded, unless the others are too
slow by themselves. Exactly `limit` still holds. One finding for each turn above the limit; with `per: scope`, one at
the turn that crosses it. With `when`, only matching turns count.

A guard cannot prevent it: the time has passed when the calls of a response are attempted.
"""

from __future__ import annotations

from bylaw.model.demand import Always, AtMost, Latency, Tally
from bylaw.rules.params import AMOUNT, PER, Param, Values

PARAMS = (
    Param("limit", AMOUNT, "the number of milliseconds that is still allowed", required=True, aliases=("ms",)),
    Param("per", PER, "what the limit is for: `turn` (each of them) or `scope` (all together)", default="turn"),
)

SYNONYMS = "latency_limit max_duration max_response_time"

EXAMPLE = """\
- id: quick-answers
  kind: max_latency
  scope: session
  severity: warning
  params:
    limit: 5000
"""


def lower(params: Values) -> Always | Tally:
    limit = params["limit"]
    return Tally(Latency(), at_most=limit) if params["per"] == "scope" else Always(AtMost(Latency(), limit))
