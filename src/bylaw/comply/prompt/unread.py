"""Sentences without a verb that forbids, and sentences that nothing has read.

`Forbidden tools: A, B` and `A: never` forbid by a label. A sentence that names a tool and is neither read nor
understood as a permission, a waiver or a description is listed as undecided, in any language: a prohibition in words
that the grammar does not know must not vanish.
"""

from __future__ import annotations

import re

from bylaw.comply.prompt.binding import Bound, bind, names_tool
from bylaw.comply.prompt.clauses import Clause, Sentence
from bylaw.comply.prompt.markers import VERBS, Force, find_marker, is_denied_twice, only_describes
from bylaw.comply.prompt.prohibitions import forbid_outright
from bylaw.comply.prompt.readings import Reading, extra_words, shorten
from bylaw.comply.prompt.vocabulary import any_case

_FORBIDDEN = (
    r"(?:(?:strictly|absolutely|expressly|explicitly|always) )?(?:forbidden|prohibited|banned|disallowed|off[- ]limits"
    r"|not (?:allowed|permitted)|never(?: ever)?(?: (?:call|use|run))?(?: (?:it|this))?"
    r"|do(?: not|n't) (?:call|use|run)(?: (?:it|this))?)"
)
_FORBIDDING_LABEL = any_case(
    rf"\W*(?:(?:the|these|all|following) )*{_FORBIDDEN}(?: (?:tools?|functions?|calls?|actions?))?\W*"
    r"|\W*(?:(?:the|these|following) )*(?:tools?|functions?|calls?) (?:that |which )?(?:(?:are|is) )?"
    r"(?:you |the agent )?"
    rf"(?:(?:must|may|should|shall|can)(?: not|not| never) (?:be )?(?:call|use|run|invoke)(?:ed|d)?|{_FORBIDDEN})\W*"
    r"|\W*(?:you |the agent )?(?:(?:must|may|should|shall|can|do)(?: not|not| never)|don't|never)"
    r" (?:call|use|run|invoke) (?:any of )?(?:the following|these)(?: tools| functions)?\W*"
)
_FORBIDS = any_case(rf"\W*{_FORBIDDEN}\W*")
_TOOLS = any_case(r"\W*(?:(?:available|your|the|other|useful|allowed) )*(?:tools|functions)\b[^:]*:")
_MORE_VERBS = "access accept allow calculate change enable estimate expect find let provide lookup delete drop"
_DESCRIPTION = any_case(
    r"\W*(?:the )?(?:tool |function )?[\w.-]+(?:\([^)]*\))?(?: tool| function)?\W{1,4}(?:(?:also|only|then|\w+ly) )?"
    rf"(?:(?:{'|'.join((*VERBS.split(), *_MORE_VERBS.split()))})(?:s|es)|(?:modif|appl|quer|cop|verif|notif|repl)ies"
    r"|is (?:an? |the |used |for |available|fine|ok|okay|safe|read-only))\b"
)
"""`get_order shows an order`, `get_order: returns …`"""


def read_label(sentence: Sentence) -> Reading | None:
    """`forbidden: A, B`, `tools you must not use: A`, `A: never`."""
    label, colon, rest = sentence.masked.partition(":")
    if not colon or not rest.strip(" .!"):
        return None
    for words, names in ((label, rest), (rest, label)):
        pattern = _FORBIDDING_LABEL if words is label else _FORBIDS
        tools = bind(names, sentence, likeness=False) if pattern.fullmatch(words) else Bound()
        if tools.is_named and not extra_words(names, tools, sentence):
            return forbid_outright(tools)
    return None


def is_passed_over(clause: Clause, sentence: Sentence) -> bool:
    """Whether a clause that gave no rule names a tool in words that are not understood."""
    start = 0 if clause.start <= sentence.body else clause.start
    text = sentence.masked[start : clause.end]
    if not names_tool(text, sentence) or only_describes(text) or _TOOLS.match(text) or _DESCRIPTION.match(text):
        return False
    return not _is_understood(clause)


def _is_understood(clause: Clause) -> bool:
    """Permissions and waivers demand nothing, unless another word denies them."""
    marker = find_marker(clause.main.text, clause.main.start)
    if marker is None or marker.force not in (Force.PERMIT, Force.WAIVE):
        return False
    start = clause.main.start
    before, behind = clause.main.text[: marker.start - start], clause.main.text[marker.end - start :]
    return not is_denied_twice(marker, before, behind)


def unread_reading(text: str) -> Reading:
    return Reading(name=shorten(re.sub(r"\W+", " ", text), 50), undecided="it names a tool in words that are not read")
