"""Each response takes at most `limit` milliseconds; with `per: scope`, all responses in scope together.

The latency is that of the model's response, as recorded. The time that tools take does not count.

Vacuous when no turn matches `when`. Inconclusive when the latency of a turn was not recorded, unless the other turns
exceed the limit by themselves. Exactly `limit` still holds. One finding for each turn above the limit; with `per:
scope`, one at the turn that crosses it. With `when`, only matching turns count.

A guard cannot prevent this: when a call is attempted, the time has already passed.
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
