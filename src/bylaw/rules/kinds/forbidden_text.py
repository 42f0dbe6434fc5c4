"""The text appears in no response.

Vacuous when no turn matches `when`. One finding per response that holds it. With `when`, only responses of matching
turns are searched.
"""

from __future__ import annotations

from bylaw.model.demand import Never
from bylaw.rules.params import TEXT_PARAMS, Values, text_has

PARAMS = TEXT_PARAMS

SYNONYMS = "banned_text must_not_contain must_not_include_text must_not_say no_text"

EXAMPLE = """\
- id: no-social-security-numbers
  kind: forbidden_text
  params:
    text: '\\b\\d{3}-\\d{2}-\\d{4}\\b'
    regex: true
"""


def lower(params: Values) -> Never:
    return Never(text_has(params))
