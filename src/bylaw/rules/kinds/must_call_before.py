"""Every call of `second` has an earlier call of `first`.

A call of `second` with no call of `first` before it breaks the rule, also where `first` is never called at all.
Calls count in the order in which they were issued, within one turn too.

With `only_if_both: true` the rule holds "whenever both are called": it judges only scopes in which both are, and is
vacuous where `first` is missing. That is the meaning in a file with `apiVersion: shadow.dev/…`, unless the rule says
`only_if_both: false`; a warning says so, since an agent that drops `first` altogether then breaks nothing.

Vacuous when `second` is never called. One finding per call of `second` that came too early.
With `when`, only calls of `second` on matching turns are judged; `first` counts from anywhere earlier in scope.
"""

from __future__ import annotations

from bylaw.model.demand import Before, Calls
from bylaw.rules.located import MapNode
from bylaw.rules.params import FLAG, TOOLS, Context, Param, Values

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


def complete(values: Values, node: MapNode, context: Context) -> Values:
    """In a file of Shadow the rule holds whenever both are called, as that product documents it."""
    if not context.is_shadow or "only_if_both" in node.entries:
        return values
    context.problems.warn(
        code="judged-if-both",
        message="this `must_call_before` is judged only where both tools are called",
        at=node.entries["first"].key,
        help="`apiVersion: shadow.dev/…` means that; write `only_if_both: false` if a missing first call is a breach",
    )
    return {**values, "only_if_both": True}


def lower(params: Values) -> Before:
    return Before(Calls(params["first"]), Calls(params["second"]), only_if_both=params["only_if_both"])
