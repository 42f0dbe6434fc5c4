"""Each of the texts appears in at least one response.

The texts may appear in one response or in several, in any order. The search is that of `must_include_text`: across the
text blocks of a response, in composed form (Unicode NFC).

Vacuous when no turn matches `when`. Inconclusive when a text is missing and the content of a response was not recorded.
One finding at the end for each text that is missing. With `when`, only responses of matching turns are searched.
"""

from __future__ import annotations

from bylaw.model.demand import Sometime
from bylaw.model.temporal import TextHas
from bylaw.rules.params import FLAG, PATTERNS, Param, Values

PARAMS = (
    Param("texts", PATTERNS, "the texts to look for", required=True, aliases=("text",)),
    Param("regex", FLAG, "whether each of them is a regular expression (RE2 syntax)", default=False),
    Param("ignore_case", FLAG, "whether upper and lower case count as equal", default=False),
)

SYNONYMS = "must_include_all must_include_texts must_contain_all required_texts"

EXAMPLE = """\
- id: mentions-both-options
  kind: must_include_text_each
  scope: session
  params:
    texts: [refund, exchange]
    ignore_case: true
"""


def lower(params: Values) -> Sometime:
    regex, ignore_case = params["regex"], params["ignore_case"]
    return Sometime(tuple(TextHas(text, regex=regex, ignore_case=ignore_case) for text in params["texts"]))
