"""The tool is never called.

Vacuous when no turn matches `when`. One finding per call. With `when`, calls on other turns are allowed; with `where`,
calls with other arguments are: `{tool: pay, where: [{path: amount, op: ">", value: 500}]}` forbids large payments.
Inconclusive when the arguments that `where` asks for were not recorded or cannot be compared. A missing argument does
not fit `where`, except under `!=`, `not_in`, `not_contains` and `missing`.

A guard stops such a call before it runs.
"""

from __future__ import annotations

from bylaw.model.demand import Never
from bylaw.rules.calls import WHERE_PARAM, calls_of
from bylaw.rules.params import TOOLS, Param, Values

PARAMS = (
    Param("tool", TOOLS, "the tool that is forbidden: a name, a glob, or a list", required=True),
    WHERE_PARAM,
)

SYNONYMS = "deny_call forbidden_call forbidden_tool must_not_call never_call no_tool"

EXAMPLE = """\
- id: no-deletions
  kind: no_call
  scope: session
  severity: critical
  params:
    tool: [delete_account, "drop_*"]
"""


def lower(params: Values) -> Never:
    return Never(calls_of(params))
