"""Every call of `second` has an earlier call of `first`.

A call of `second` with no call of `first` before it breaks the rule, even if `first` is never called at all.
Calls count in the order in which they were issued, within one turn too.

`first` and `second` may be written `{tool: …, where: […]}`: then only calls whose arguments fit are meant. With `same:
[order_id]`, the earlier call must have the same values at these paths of its arguments. A call of `second` that lacks
one of them breaks the rule. Values are compared as JSON: `5` and `"5"` differ.

With `only_if_both: true`, the rule judges only scopes in which both tools are called. An agent that never calls `first`
then breaks nothing.

Vacuous when `second` is never called. One finding per call of `second` that came too early.
With `when`, only calls of `second` on matching turns are judged; `first` counts from anywhere earlier in scope.

A guard stops a call of `second` that comes too early before it runs. With `only_if_both` it cannot.
"""

from __future__ import annotations

from bylaw.model.demand import Before
from bylaw.rules.calls import CALLS, SAME
from bylaw.rules.nodes import MapNode
from bylaw.rules.params import FLAG, Context, Param, Values

PARAMS = (
    Param("first", CALLS, "the tool that comes first: a name, a glob, a list, or `{tool, where}`", required=True),
    Param(
        "second",
        CALLS,
        "the tool that may be called only after `first`: a name, a glob, a list, or `{tool, where}`",
        required=True,
        aliases=("then",),
    ),
    Param("only_if_both", FLAG, "whether to judge only scopes in which both are called", default=False),
    Param("same", SAME, "the argument that must be equal in both calls, or a list of them"),
)

SYNONYMS = "before call_before must_precede must_call_first must_happen_before order precedes requires"

EXAMPLE = """\
- id: confirm-before-refund
  kind: must_call_before
  scope: session
  params:
    first: confirm_refund_amount
    second: issue_refund
"""


TOGETHER = {"not": {"properties": {"only_if_both": {"const": True}}, "required": ["only_if_both", "same"]}}


def complete(values: Values, node: MapNode, context: Context) -> Values | None:
    if not values["only_if_both"] or "same" not in values:
        return values
    context.problems.error(
        code="conflicting-parameters",
        message="`only_if_both` does not go with `same`",
        at=node.entries["only_if_both"].key,
        help="remove one of them",
    )
    return None


def lower(params: Values) -> Before:
    same = tuple(path.keys for path in params.get("same", ()))
    return Before(params["first"], params["second"], only_if_both=params["only_if_both"], same=same)
