"""The text appears in no response.

The text is looked for across blocks: in the text blocks of the response joined by newlines, and in the same blocks
joined directly, since a word may be split over two of them. Text and pattern are compared in composed form (Unicode
NFC).

Vacuous when no turn matches `when`. One finding per response that holds it. With `when`, only responses of matching
turns are searched.
"""

from __future__ import annotations

from bylaw.model.demand import Never
from bylaw.rules.params import TEXT, TEXT_PARAMS, Param, Values, text_has

PARAMS = (
    *TEXT_PARAMS,
    Param("message", TEXT, "what a finding says went wrong, in place of the text: `it has more than 80 words`"),
)

SYNONYMS = "banned_text must_not_contain must_not_include_text must_not_say no_text"

EXAMPLE = """\
- id: no-social-security-numbers
  kind: forbidden_text
  scope: session
  params:
    text: '\\b\\d{3}-\\d{2}-\\d{4}\\b'
    regex: true
"""


def lower(params: Values) -> Never:
    return Never(text_has(params), params.get("message", ""))
