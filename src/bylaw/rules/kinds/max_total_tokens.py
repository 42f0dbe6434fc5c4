"""The tokens of all turns together, input and output, are at most `n`.

Reasoning tokens are part of the output and are not counted again. Vacuous when no turn matches `when`; inconclusive
when no usage was recorded. One finding, at the turn that crosses the bound; exactly `n` still holds. With `when`, only
matching turns count.
"""

from __future__ import annotations

from bylaw.model.demand import Tally, Tokens
from bylaw.rules.params import COUNT, Param, Values

PARAMS = (Param("n", COUNT, "the number of tokens that is still allowed", required=True, aliases=("limit",)),)

SYNONYMS = "max_tokens token_budget token_limit"

EXAMPLE = """\
- id: token-budget
  kind: max_total_tokens
  scope: session
  severity: warning
  params:
    n: 4000
"""


def lower(params: Values) -> Tally:
    return Tally(Tokens(), at_most=params["n"])
