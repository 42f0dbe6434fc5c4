"""There are at most `n` turns.

Vacuous when no turn matches `when`. One finding, at the turn that is one too many. With `when`, only matching turns
count.
"""

from __future__ import annotations

from bylaw.model.demand import Tally, Turns
from bylaw.rules.params import COUNT, Param, Values

PARAMS = (Param("n", COUNT, "the number of turns that is still allowed", required=True, aliases=("limit",)),)

SYNONYMS = "turn_limit max_steps"

EXAMPLE = """\
- id: short-conversations
  kind: max_turns
  scope: session
  severity: warning
  params:
    n: 20
"""


def lower(params: Values) -> Tally:
    return Tally(Turns(), at_most=params["n"])
