"""Every response ends for one of the allowed reasons.

Vacuous when no turn matches `when`. One finding per response that ended otherwise. With `when`, only matching turns
are judged.
"""

from __future__ import annotations

from bylaw.model.demand import Always, StopReasonIn
from bylaw.rules.params import NAMES, Param, Values

PARAMS = (Param("allowed", NAMES, "the stop reason that is allowed, or a list of them", required=True),)

SYNONYMS = "stop_reason"

EXAMPLE = """\
- id: no-cut-off-answers
  kind: required_stop_reason
  scope: session
  params:
    allowed: [end_turn, tool_use]
"""


def lower(params: Values) -> Always:
    return Always(StopReasonIn(params["allowed"]))
