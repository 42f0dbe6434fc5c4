"""Enough of the words of every response stand in the retrieved chunks.

The share of the response's distinct words found in the chunks must reach `min_unigram_precision`. Words are runs of
letters and digits of any script, lower-cased, at least two characters long. The chunks at `retrieval_path` may be a
text, a list of texts, or a list of mappings with `text`, `content` or `page_content`. This compares words, not
meaning.

Vacuous when no turn has chunks. One finding per response below the threshold. With `when`, only matching turns are
judged.
"""

from __future__ import annotations

from bylaw.model.demand import Always, Grounded
from bylaw.rules.params import PATH, SHARE, Param, Values

PARAMS = (
    Param("retrieval_path", PATH, "the path of the chunks, such as `request.metadata.chunks`", required=True),
    Param("min_unigram_precision", SHARE, "the share of words that must be found, from 0 to 1", default=0.5),
)

SYNONYMS = "grounded grounding"

EXAMPLE = """\
- id: answers-from-the-documents
  kind: must_be_grounded
  params:
    retrieval_path: request.metadata.retrieved_chunks
    min_unigram_precision: 0.6
"""


def lower(params: Values) -> Always:
    return Always(Grounded(path=params["retrieval_path"], min_precision=params["min_unigram_precision"]))
