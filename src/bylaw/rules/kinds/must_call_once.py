"""The tool is called exactly once.

Vacuous when no turn matches `when`. One finding at the end if there was no call, and one for each call after the
first. With `when`, only calls on matching turns count; with `where`, only calls whose arguments fit.
"""

from __future__ import annotations

from bylaw.model.demand import Tally
from bylaw.rules.calls import WHERE_PARAM, calls_of
from bylaw.rules.params import TOOLS, Param, Values

PARAMS = (
    Param("tool", TOOLS, "the tool to call once: a name, a glob, or a list", required=True),
    WHERE_PARAM,
)

SYNONYMS = "call_once exactly_once only_once"

EXAMPLE = """\
- id: charge-once
  kind: must_call_once
  scope: session
  params:
    tool: charge_card
"""


def lower(params: Values) -> Tally:
    return Tally(calls_of(params), at_most=1, at_least=1, each_excess=True)
