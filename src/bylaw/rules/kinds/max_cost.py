"""The responses in scope cost at most `limit` US dollars together; with `per: turn`, each of them.

The cost of a response is its tokens times the price of its model, from the price list that comes with Bylaw. A list of
your own (`bylaw diff --prices`) is not used here. Sums are exact to the last digit of a price.

Vacuous when no turn matches `when`. Inconclusive when a turn has no recorded tokens, or its model is not on the price
list, unless the other turns exceed the limit by themselves. Exactly `limit` still holds. One finding, at the turn that
crosses the limit; with `per: turn`, one for each turn above it. With `when`, only matching turns count.

A guard cannot prevent this: when a call is attempted, the response that contains it is already paid for.
"""

from __future__ import annotations

from bylaw.model.demand import Always, AtMost, Cost, Tally
from bylaw.rules.params import AMOUNT, PER, Param, Values

PARAMS = (
    Param("limit", AMOUNT, "the number of US dollars that is still allowed", required=True, aliases=("usd",)),
    Param("per", PER, "what the limit is for: `scope` (all turns together) or `turn`", default="scope"),
)

SYNONYMS = "cost_limit max_spend max_total_cost"

EXAMPLE = """\
- id: cost-budget
  kind: max_cost
  scope: session
  severity: warning
  params:
    limit: 0.25
"""


def lower(params: Values) -> Always | Tally:
    limit = params["limit"]
    return Always(AtMost(Cost(), limit)) if params["per"] == "turn" else Tally(Cost(), at_most=limit)
