"""The numbers at `path` in the arguments of all calls of the tool add up to at most `limit`.

Sums are exact: `0.1` and `0.2` make `0.3`. Text such as `"20"` counts as its number. A negative number adds nothing, so
that it makes no room for more. With `*` in the path, as in `items.*.price`, every element counts. A call without the
argument adds nothing.

Vacuous when no call has the argument. Inconclusive when a value is no number or was not recorded, unless the other
values exceed the limit by themselves. One finding for each call that adds something and leaves the sum over the limit;
exactly `limit` still holds. With `when`, only calls on matching turns count; with `where`, only calls whose arguments
fit.

A guard stops the call that would exceed the limit before it runs, and one whose value cannot be read.
"""

from __future__ import annotations

from bylaw.model.demand import Tally
from bylaw.model.demand import Values as ValuesAt
from bylaw.rules.calls import ARGUMENT, WHERE_PARAM, calls_of
from bylaw.rules.params import AMOUNT, TOOLS, Param, Values

PARAMS = (
    Param("tool", TOOLS, "the tool whose calls are added up: a name, a glob, or a list", required=True),
    Param(
        "path",
        ARGUMENT,
        "the path of the number in the arguments, such as `amount`",
        required=True,
        aliases=("argument",),
    ),
    Param("limit", AMOUNT, "the sum that is still allowed", required=True),
    WHERE_PARAM,
)

COUNT_LIMIT = "limit"

SYNONYMS = "sum_limit max_total max_amount"

EXAMPLE = """\
- id: refund-budget
  kind: max_sum
  scope: session
  params:
    tool: issue_refund
    path: amount
    limit: 500
"""


def lower(params: Values) -> Tally:
    path = params["path"]
    return Tally(ValuesAt(calls_of(params), path.keys, path.text), at_most=params["limit"], each_excess=True)
