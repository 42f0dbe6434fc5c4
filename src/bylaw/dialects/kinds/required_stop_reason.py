"""Every response ends for one of the allowed reasons.

Vacuous when no turn matches `when`. One finding per response that ended otherwise. With `when`, only matching turns
are judged.
"""

from __future__ import annotations

from bylaw.dialects.param_types import NAMES
from bylaw.dialects.params import Param, Values
from bylaw.model.demand import Always, StopReasonIn

PARAMS = (Param("allowed", NAMES, "the stop reason that is allowed, or a list of them", required=True),)

EXAMPLE = """\
- id: no-cut-off-answers
  kind: required_stop_reason
  params:
    allowed: [end_turn, tool_use]
"""


def lower(params: Values) -> Always:
    return Always(StopReasonIn(params["allowed"]))
