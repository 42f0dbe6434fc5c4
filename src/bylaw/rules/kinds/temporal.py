"""What happens before, after, within or since what, is as the rule says.

The rule is a formula under `formula`, a few words such as `before` and `require`, or a named `pattern`: one of these
three. It speaks of positions: each call, each result and each response of the scope, in order. The language of
formulas, and all that is exact about it, is in [temporal rules](../temporal.md).

| in words | means |
|---|---|
| `before: a`, `require: b` | every a has a b before it; also `within`, `same`, `seen` |
| `after: a`, `require: b` | every a has a b after it; also `within`, `same` |
| `never: a` | no a |
| `never: a`, `unless: b` | no a without a b before it; also `within`, `same`, `seen` |
| `never: a`, `after: b` | no a once there was a b; also `within`, `same`, `seen` |
| `never: a`, `until: b` | no a until the first b; also `same` |
| `at_most: n`, `of: a` | no more than n times a; also `within`, `same` |

An event such as a and b is a tool's name, a glob or a list of them, meaning a call; or a mapping: `{tool: name, args:
{path: value}}`, `{result: name, args: …, returns: {path: {">=": 5}}, error: false}`, `{text: …}`, `{user: …}` or
`{stop_reason: …}`.

| `pattern` | says of its `scope` |
|---|---|
| `absence`, `existence`, `universality` of `p` | no p; a p; nothing but p |
| `precedence` of `s`, `p` | every p has an s before it |
| `response` of `p`, `s` | every p has an s after it |
| `chain_precedence` of `s`, `t`, `p` | every p has an s and then a t before it |
| `chain_response` of `p`, `s`, `t` | every p has an s and then a t after it |
| `bounded_count` of `p`, `n` | at most n p |

The `scope` of a pattern is `global`, `{before: r}` (up to the first r, if there is one), `{after: q}` (from the first
q on), `{between: [q, r]}` (from each q to the next r, if there is one) or `{after: q, until: r}` (from each q to the
next r or to the end).

Vacuous when nothing was judged: `G (p -> q)` where p was never true. `G p` gives one finding for each position where p
fails; any other formula gives at most one finding. With `when`, only positions of matching turns are judged; the
operators see every position.

A file with `apiVersion: shadow.dev/…` may write `kind: ltl_formula`. There a position is a turn unless `over` is given.
"""

from __future__ import annotations

from bylaw.model.demand import Temporal
from bylaw.rules.nodes import MapNode
from bylaw.rules.params import COUNT, FLAG, TEXT, Context, Param, Values, choice
from bylaw.rules.temporal.events import EVENT, event_schema
from bylaw.rules.temporal.formula import FORMULA, combine
from bylaw.rules.temporal.patterns import EVENTS, SCOPE
from bylaw.rules.temporal.wording import SAME, WITHIN, forms_schema

PARAMS = (
    Param("formula", FORMULA, "the formula, such as `G (tool(a) -> O tool(b))`"),
    Param("before", EVENT, "the event that needs another before it"),
    Param("after", EVENT, "the event after which something is required or forbidden"),
    Param("never", EVENT, "the event that is forbidden"),
    Param("require", EVENT, "the event that has to come before or after"),
    Param("unless", EVENT, "the event that allows what is forbidden"),
    Param("until", EVENT, "the event that ends what is forbidden"),
    Param("at_most", COUNT, "how often an event may come"),
    Param("of", EVENT, "the event that is counted"),
    Param("within", WITHIN, "how far to look: `10m`, `2 hours`, `3 turns`, `5 events`"),
    Param("same", SAME, "the argument that must be equal in both events, or a list of them"),
    Param("seen", FLAG, "whether the model must have been given the earlier event's result"),
    Param("pattern", choice(*EVENTS), "the name of a pattern"),
    Param("p", EVENT, "the event that the pattern is about"),
    Param("s", EVENT, "the event before or after it"),
    Param("t", EVENT, "the second event of a chain"),
    Param("n", COUNT, "the number of `bounded_count`"),
    Param("scope", SCOPE, "the stretch that the pattern speaks of, `global` unless given"),
    Param("over", choice("events", "turns"), "what a position is: `events` or `turns`", default="events"),
    Param(
        "message",
        TEXT,
        "what a finding says went wrong, in place of the rule: `no receipt was sent after it`; with `, but` in it,"
        " it is the whole sentence",
    ),
)

TOGETHER = forms_schema()

DEFINITIONS = {"event": event_schema()}

COUNT_LIMIT = "at_most"

SYNONYMS = "formula ltl ltl_formula mtl precedence response temporal_logic within"

EXAMPLE = """\
- id: verified-refunds
  kind: temporal
  scope: session
  params:
    formula: >-
      G (tool(issue_refund, args.order_id = $o, args.amount = $a)
         -> O[<=10m] result(verify_receipt, args.order_id = $o, result.amount >= $a))
"""


def complete(values: Values, node: MapNode, context: Context) -> Values | None:
    if context.is_shadow and "over" not in node.entries:
        values = {**values, "over": "turns"}
    demand = combine(values, node, context)
    return None if demand is None else {**values, "demand": demand}


def lower(params: Values) -> Temporal:
    demand: Temporal = params["demand"]
    return demand
