"""Enough of the content words of every response stand in the retrieved chunks.

The share of the response's distinct content words found in the chunks must reach `min_unigram_precision`. Words are
runs of letters and digits of any script, composed (NFC), lower-cased, at least two characters long; content words are
those that are not stop words such as "the", "is", "und" or "les". Stop words are known of English, German, French,
Spanish, Italian, Portuguese, Dutch, Russian, Swedish, Polish, Turkish, Greek, Hebrew, Arabic and Hindi. In another
language every word counts as content. Chinese and Japanese have no spaces, so a whole clause counts as one word: an
answer of one clause is inconclusive, and a longer one holds only if its clauses stand in the chunks as they are. The
chunks at `retrieval_path` may be a text, a list of texts, or a list of mappings that hold their text under a usual key,
in this order: `text`, `content`, `page_content`, `pageContent`, `body`, `chunk`, `chunk_text`, `chunk_content`,
`passage`, `snippet`, `excerpt`, `document`, `node`, `value`. What stands there may be a mapping or a list again, as in
`{node: {text: …}}`.

Vacuous when no turn has chunks. Inconclusive when chunks hold no text under these keys, unless the others suffice, and
when an answer has fewer than `min_content_words` content words: "the , ." cannot pass. One finding per response below
the threshold. With `when`, only matching turns are judged.

This compares words, not meaning. It catches an answer about something else. It does not catch:

- a contradiction: "refunds take 3 days" has the words of a chunk that says "refunds do not take 3 days";
- a conclusion that the chunks do not support, drawn in their own words.

And it reports a paraphrase: an answer that says the same in other words is grounded, but not by its words.

Use it as a cheap gate for every run. Where meaning decides, add a judge: a function that scores each response, passed
as `bylaw.diff(…, judge=…)`, or a sentence of the system prompt that `bylaw comply --judge` verifies.
"""

from __future__ import annotations

from bylaw.model.demand import Always, Grounded
from bylaw.rules.params import COUNT, PATH, SHARE, Param, Values

PARAMS = (
    Param("retrieval_path", PATH, "the path of the chunks, such as `request.metadata.chunks`", required=True),
    Param("min_unigram_precision", SHARE, "the share of content words that must be found, from 0 to 1", default=0.5),
    Param("min_content_words", COUNT, "the fewest distinct content words that a response is judged by (default 2)"),
)

_FEWEST_WORDS = 2
"""not a declared default: `params` of a rule are part of a guard's hash, and a new default would change that"""

SYNONYMS = "grounded grounding"

EXAMPLE = """\
- id: answers-from-the-documents
  kind: must_be_grounded
  scope: session
  params:
    retrieval_path: request.metadata.retrieved_chunks
    min_unigram_precision: 0.6
"""


def lower(params: Values) -> Always:
    path, share = params["retrieval_path"], params["min_unigram_precision"]
    return Always(Grounded(path=path, min_precision=share, min_words=params.get("min_content_words", _FEWEST_WORDS)))
