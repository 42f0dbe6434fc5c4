"""The text appears in at least one response.

The text is looked for across blocks: in the text blocks of the response joined by newlines, and in the same blocks
joined directly, since a word may be split over two of them. Text and pattern are compared in composed form (Unicode
NFC).

Vacuous when no turn matches `when`. One finding, at the end. With `when`, only responses of matching turns are
searched.
"""

from __future__ import annotations

from bylaw.model.demand import Sometime
from bylaw.rules.params import TEXT_PARAMS, Values, text_has

PARAMS = TEXT_PARAMS

SYNONYMS = "must_contain must_contain_text must_say required_text"

EXAMPLE = """\
- id: says-it-is-an-assistant
  kind: must_include_text
  scope: session
  params:
    text: automated assistant
    ignore_case: true
"""


def lower(params: Values) -> Sometime:
    return Sometime((text_has(params),))
