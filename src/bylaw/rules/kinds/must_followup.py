"""The turn after a triggering one does what `must` says.

`must` is `{kind: tool_call, tool_name}` or `{kind: text_includes, text}`; the latter also takes `regex` and
`ignore_case`. A trigger on the last turn of the scope breaks the rule too: nothing followed.

Vacuous when nothing triggers. One finding per trigger, at the turn that should have followed up, or at the trigger if
it was the last turn. With `when`, only matching turns trigger; the turn after need not match.
"""

from __future__ import annotations

from bylaw.model.demand import Next
from bylaw.rules.must import MUST
from bylaw.rules.param_types import TRIGGER
from bylaw.rules.params import Param, Values

PARAMS = (
    Param("trigger", TRIGGER, "the conditions that make a turn a trigger", required=True),
    Param("must", MUST, "what the next turn must do", required=True),
)

EXAMPLE = """\
- id: confirm-after-quote
  kind: must_followup
  params:
    trigger:
      - { path: response.content, op: contains, value: quote_total }
    must: { kind: tool_call, tool_name: confirm_with_user }
"""


def lower(params: Values) -> Next:
    return Next(trigger=params["trigger"], must=params["must"])
