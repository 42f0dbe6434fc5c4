"""The three parameters by which a rule says what text to look for."""

from __future__ import annotations

from bylaw.model.demand import TextHas
from bylaw.rules.param_types import FLAG, PATTERN
from bylaw.rules.params import Param, Values

TEXT_PARAMS = (
    Param("text", PATTERN, "the text to look for", required=True),
    Param("regex", FLAG, "whether `text` is a regular expression (RE2 syntax)", default=False),
    Param("ignore_case", FLAG, "whether upper and lower case count as equal", default=False),
)


def text_has(params: Values) -> TextHas:
    return TextHas(text=params["text"], regex=params["regex"], ignore_case=params["ignore_case"])
