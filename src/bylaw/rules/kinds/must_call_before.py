"""Every call of `second` has an earlier call of `first`.

A call of `second` with no call of `first` before it breaks the rule, also where `first` is never called at all.
Calls count in the order in which they were issued, within one turn too.

With `only_if_both: true` the rule means "whenever both are called": it judges only scopes in which both are, so that an
agent which drops `first` altogether breaks nothing.

Vacuous when `second` is never called. One finding per call of `second` that came too early.
With `when`, only calls of `second` on matching turns are judged; `first` counts from anywhere earlier in scope.
"""

from __future__ import annotations

from bylaw.model.demand import Before, Calls
from bylaw.rules.params import FLAG, TOOLS, Param, Values

PARAMS = (
    Param("first", TOOLS, "the tool that comes first: a name, a glob, or a list", required=True),
    Param("second", TOOLS, "the tool that needs it: a name, a glob, or a list", required=True, aliases=("then",)),
    Param("only_if_both", FLAG, "whether to judge only scopes in which both are called", default=False),
)

SYNONYMS = "before call_before must_precede must_call_first must_happen_before order precedes requires"

EXAMPLE = """\
- id: confirm-before-refund
  kind: must_call_before
  params:
    first: confirm_refund_amount
    second: issue_refund
"""


def lower(params: Values) -> Before:
    return Before(Calls(params["first"]), Calls(params["second"]), only_if_both=params["only_if_both"])
