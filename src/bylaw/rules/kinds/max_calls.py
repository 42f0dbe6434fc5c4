"""The tool is called at most `limit` times.

Vacuous when no turn matches `when`. One finding for each call after the last that is allowed. With `when`, only calls
on matching turns count; with `where`, only calls whose arguments fit it. Inconclusive when `where` cannot be decided
for some calls (arguments not recorded, or of another type), and counting them could exceed the limit.

A guard stops the call that would exceed the limit before it runs.
"""

from __future__ import annotations

from bylaw.model.demand import Tally
from bylaw.rules.calls import WHERE_PARAM, calls_of
from bylaw.rules.params import COUNT, TOOLS, Param, Values

PARAMS = (
    Param("tool", TOOLS, "the tool that is counted: a name, a glob, or a list", required=True),
    Param("limit", COUNT, "the number of calls that is still allowed", required=True, aliases=("n",)),
    WHERE_PARAM,
)

COUNT_LIMIT = "limit"

SYNONYMS = "at_most_calls call_limit max_tool_calls"

EXAMPLE = """\
- id: few-searches
  kind: max_calls
  scope: session
  params:
    tool: web_search
    limit: 5
"""


def lower(params: Values) -> Tally:
    return Tally(calls_of(params), at_most=params["limit"], each_excess=True)
