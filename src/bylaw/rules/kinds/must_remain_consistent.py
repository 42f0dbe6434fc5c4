"""Every later value at `path` equals the first one seen.

Turns where the path is absent or null are skipped. Values are compared as JSON: `1` equals `1.0`, `1` differs from
`true`.

Vacuous when no value is seen. One finding per turn whose value differs. With `when`, only matching turns are looked
at, the first value included.
"""

from __future__ import annotations

from bylaw.model.demand import Constant
from bylaw.rules.params import PATH, Param, Values

PARAMS = (Param("path", PATH, "the path of the value, such as `request.params.amount`", required=True),)

SYNONYMS = "consistent must_be_consistent must_not_change"

EXAMPLE = """\
- id: amount-does-not-change
  kind: must_remain_consistent
  scope: session
  params:
    path: request.params.amount
"""


def lower(params: Values) -> Constant:
    return Constant(params["path"])
