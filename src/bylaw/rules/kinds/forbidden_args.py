"""No call of the tool has one of these arguments.

`args` maps paths into the arguments to what is forbidden there: a value, a list of values, or `{operator: value}` with
the operators of `when` (`==`, `!=`, `>`, `>=`, `<`, `<=`, `in`, `not_in`, `contains`, `not_contains`, `matches`,
`starts_with`, `ends_with`, `exists: true`, `missing: true`). A call breaks the rule if any of these paths holds what is
forbidden there; several operators for one path must all hold. To forbid a combination of arguments, use `no_call` with
`where`.

Vacuous when no turn matches `when`. One finding for each such call. Inconclusive when the arguments of a call were not
recorded or cannot be compared. With `when`, only calls on matching turns count.

A guard stops such a call before it runs, and one whose arguments cannot be compared.
"""

from __future__ import annotations

from bylaw.model.demand import Calls, Never
from bylaw.rules.calls import ARGUMENTS
from bylaw.rules.params import TOOLS, Param, Values

PARAMS = (
    Param("tool", TOOLS, "the tool: a name, a glob, or a list", required=True),
    Param(
        "args",
        ARGUMENTS,
        "what is forbidden, by path: a value, a list of values, or `{operator: value}`",
        required=True,
    ),
)

SYNONYMS = "forbid_args forbidden_arguments no_args banned_args"

EXAMPLE = """\
- id: no-outside-recipients
  kind: forbidden_args
  scope: session
  params:
    tool: send_email
    args:
      bcc: { exists: true }
      to: { matches: '@competitor\\.example$' }
"""


def lower(params: Values) -> Never:
    return Never(Calls(params["tool"], params["args"].predicate))
