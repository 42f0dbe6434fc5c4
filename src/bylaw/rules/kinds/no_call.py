"""The tool is never called.

Vacuous when no turn matches `when`. One finding per call. With `when`, calls on other turns are allowed.
"""

from __future__ import annotations

from bylaw.model.demand import Calls, Never
from bylaw.rules.params import TOOLS, Param, Values

PARAMS = (Param("tool", TOOLS, "the tool that is forbidden: a name, a glob, or a list", required=True),)

SYNONYMS = "deny_call forbidden_call forbidden_tool must_not_call never_call no_tool"

EXAMPLE = """\
- id: no-deletions
  kind: no_call
  severity: critical
  params:
    tool: [delete_account, "drop_*"]
"""


def lower(params: Values) -> Never:
    return Never(Calls(params["tool"]))
