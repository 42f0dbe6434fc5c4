"""The tool is never called.

Vacuous when no turn matches `when`. One finding per call. With `when`, calls on other turns are allowed.
"""

from __future__ import annotations

from bylaw.model.demand import Calls, Never
from bylaw.rules.param_types import TOOLS
from bylaw.rules.params import Param, Values

PARAMS = (Param("tool", TOOLS, "the tool that is forbidden: a name, a glob, or a list", required=True),)

EXAMPLE = """\
- id: no-deletions
  kind: no_call
  severity: critical
  params:
    tool: [delete_account, "drop_*"]
"""


def lower(params: Values) -> Never:
    return Never(Calls(params["tool"]))
