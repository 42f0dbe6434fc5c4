"""The force of a clause on an action: it forbids, requires, restricts, permits or waives the action.

| force | words |
|---|---|
| waive | no need to, do not have to, not required, optional, do not hesitate |
| require, by a double negative | never forget to, do not fail to, must not skip |
| only | only, can only, may only, exclusively, solely |
| forbid | never, must not, do not, may not, cannot, under no circumstances, forbidden, not allowed, avoid, … |
| require | must, always, have to, required, should, ensure, … |
| permit | may, can, feel free to |

The first row that matches decides. A clause without any of these words is a demand if it is an imperative.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.model import RuleSeverity
from bylaw.comply.prompt.vocabulary import lower_in_place


class Force(StrEnum):
    FORBID = "forbid"
    REQUIRE = "require"
    ONLY = "only"
    PERMIT = "permit"
    WAIVE = "waive"


class Marker(Struct, frozen=True):
    force: Force
    start: int
    end: int
    word: str
    severity: RuleSeverity


_NEG = r"(?:never|do not|don't|does not|must not|mustn't|should not|shouldn't|cannot|can't|may not|shall not)"
_WAIVE = re.compile(
    r"\bno need (?:to|for)\b|\b(?:do|does|did|need) not (?:need|have) to\b|\b(?:don't|doesn't) (?:need|have) to\b"
    r"|\b(?:do|does) not (?:need|require)\b|\b(?:don't|doesn't) (?:need|require)\b|\bneed not\b|\bneedn't\b"
    r"|(?:\bnot|\b(?:is|are)n't) (?:strictly )?(?:required|obliged|necessary|mandatory|obligatory|needed)\b"
    r"|\bunnecessary to\b|\b(?:is|are) optional\b|\b(?:do not|don't|never|not) hesitate\b|\b(?:is|are|was|were|it's)"
    r" not (?:only|just|merely)\b|\bnot a problem\b"
)
_DOUBLE_NEGATIVE = re.compile(rf"\b{_NEG} (?:ever )?(?:forget|fail|omit|neglect|skip|miss)(?:ting|ping)?(?: to)?\b")
_ONLY = re.compile(
    r"\b(?:only\b(?<!not only)(?<!the only)(?<!read-only)(?<!read only)|(?:exclusively|solely)\b(?<!not exclusively)"
    r"(?<!not solely))(?!-)(?! the first)"
)
_FORBID = re.compile(
    rf"\b(?:under no circumstances|in no case|at no (?:point|time)|on no account)\b|\b{_NEG}\b|\bmust never\b"
    rf"|\bought not\b|\b(?:is|are|be|remains?) (?:strictly |absolutely |expressly |explicitly )?(?:forbidden|prohibited"
    rf"|disallowed|banned|off[- ]limits)\b|\b(?:forbidden|prohibited) (?:to|from)\b|\bstrictly forbidden\b"
    rf"|\bnot (?:be )?(?:allowed|permitted|authori[sz]ed|acceptable)\b|\bavoid\b|\brefrain from\b|\b(?:be sure"
    rf"|make sure|careful) not to\b|\bno \w+(?: \w+)? (?:may|can|should|must|shall) (?:ever )?be\b|\bmust be avoided\b"
    rf"|\b(?:nobody|no one|no-one|no (?:agent|assistant|bot|model)) (?:may|can|should|shall|is (?:allowed"
    rf"|permitted) to)\b|\bnothing (?:may|can|should|shall) (?:ever )?be\b|\bneither(?= (?:call|use|invoke|run"
    rf"|execute)\b)|\b(?:neither|none of)\b(?=.*\b(?:may|can|should|shall|allowed|permitted)\b)(?!.*\b(?:must|need(?:s"
    rf"|ed)?|ha(?:ve|s) to|required|necessary|optional)\b)|\bdoes not (?:allow|permit)\b"
)
_REQUIRE = re.compile(
    r"\b(?:must|shall|always|should|ought to|(?:have|has|need|needs) to|(?:is|are|be) (?:required|mandatory|expected"
    r"|obliged)|(?:is|are) (?:limited|capped|restricted) (?=to|at)|required|requires?|mandatory|ensure|make sure"
    r"|be sure to|needs? (?:[a-z']+ ){0,3}?(?:approval|confirmation|verification|authori[sz]ation|consent)|(?:is"
    r"|are) (?:essential|important|critical|imperative|crucial)|try to|aim to|prefer|remember to)\b"
)
_PERMIT = re.compile(
    r"\b(?:feel free to|(?:is|are) free to|may|can|could|might|(?:is|are) (?:allowed|permitted)|(?:is"
    r"|are) (?:able|welcome) to|optionally)\b"
)
_DESCRIBES = re.compile(
    r"\b(?:is|are) (?:not )?(?:required|mandatory) (?:by|in) the (?:api|schema)\b|\bthe (?:api|tool|system"
    r"|backend) (?:does not|doesn't|do not) (?:check|validate|verify)\b|^(?!\W*(?:never|do not|don't|always|you must"
    r"|must|avoid)\b)(?!.*\b(?:must|shall|never|may not|do not|don't|should|before|has to|have to"
    r"|need to)\b)[^,;]*?\b(?:indicates?|(?<!by )means|denotes|represents?|refers? to)\b"
    r"|(?<!that )(?<!which )\b(?:cannot|can't) be (?:undone|reversed|recovered)\b(?!.*\b(?:never|do not|don't|must"
    r"|always)\b)"
)
_MAY_DESCRIBE = re.compile(
    r"api|schema|indicat|means|denote|represent|refer|validate|verify|check|undone|reverse|recover"
)
"""one of these is in everything that `_DESCRIBES` finds; it saves most searches"""
_CRITICAL = re.compile(
    r"under no circumstances|on no account|in no case|at no (?:point|time)|strictly (?:forbidden|prohibited)|\bcritical"
)
_SAYS_CRITICAL = re.compile(r"\bcritical(?:ly)?:|\bunder no circumstances\b")
_STRONG = re.compile(
    r"never|do not|don't|must|mustn't|always|shall|forbidden|prohibited|cannot|can't|may not"
    r"|not (?:be )?(?:allowed|permitted)|required|requires"
    r"|mandatory|have to|has to|needs? to|obliged|no \w+|only|essential|imperative|crucial|ensure|make sure|be sure"
)
_WEAK = re.compile(r"try to|aim to|prefer")
_SHOULD = re.compile(r"\bshould\b")
_LIMITS = re.compile(r"\b(?:at most|no more than|up to|a maximum of|exactly|not more than)\b")
"""`may call A at most twice` permits and limits; only the limit can be broken"""
_NO_DENIAL = re.compile(
    r"\b(?:no|not|never) (?:be )?(?:(?:more|less|greater|higher|larger|bigger|lower|smaller|fewer) than|exceed\w*|over"
    r"|above|under|below)\b|\b(?:that|which) (?:cannot|can't) be (?:undone|reversed|recovered)\b"
)
"""bounds and properties in negative words"""
_NOBODY = r"\b(?:neither|none|nobody|no one|no-one|nothing|nowhere)\b"
_DENIES = re.compile(
    _NOBODY + r"|\b(?:not|never|no|cannot|hardly|rarely|seldom|avoid\w*|refrain\w*|abstain\w*|forbid\w*|prohibit\w*"
    r"|disallow\w*|bann?(?:ed|ing|s)?|off[- ]limits)\b|n't\b"
)
_NOBODY_ELSE = re.compile(_NOBODY)
_NOT_ALWAYS = re.compile(r"\W*(?:you |we )?(?:always|necessarily|usually|generally|ha(?:ve|s) to|need to)\b")
_NEAR = 14
"""the most characters between `must` and a `never` that belongs to it"""


def find_marker(text: str, start: int = 0, *, whole: str = "") -> Marker | None:
    """The marker in the masked text of a clause; `whole` is the sentence, for words such as `critical`."""
    found = _find_uncached(lower_in_place(text))
    if found is None:
        return None
    severity: RuleSeverity = "critical" if _SAYS_CRITICAL.search(lower_in_place(whole)) else found.severity
    return replace(found, start=found.start + start, end=found.end + start, severity=severity)


@lru_cache(maxsize=4_096)
def _find_uncached(text: str) -> Marker | None:
    if only_describes(text):
        return None
    if found := _WAIVE.search(text):
        return _marker(Force.WAIVE, found)
    if found := _DOUBLE_NEGATIVE.search(text):
        return _marker(Force.REQUIRE, found)
    forbid, require = _FORBID.search(text), _REQUIRE.search(text)
    only = _ONLY.search(text)
    if only and not (forbid and forbid.start() < only.start()):
        marker = _marker(Force.ONLY, only)
        return replace(marker, severity="medium") if _SHOULD.search(text, 0, only.start()) else marker
    if forbid and (require is None or forbid.start() <= require.end() + _NEAR):
        return _marker(Force.FORBID, forbid)
    permit = _PERMIT.search(text)
    if require and not (permit and permit.start() < require.start() and permit[0] in ("may", "can")):
        return _marker(Force.REQUIRE, require)
    if permit and _LIMITS.search(text):
        return Marker(Force.REQUIRE, permit.start(), permit.end(), permit[0], "high")
    return _marker(Force.PERMIT, permit) if permit else None


def is_denied_twice(marker: Marker, before: str, behind: str) -> bool:
    """`must never avoid`, `not forbidden`, `don't always have to`: the rest of the clause turns its marker round."""
    rest = _NO_DENIAL.sub(" ", lower_in_place(f"{before} {behind}"))
    if marker.force is Force.REQUIRE and not _DOUBLE_NEGATIVE.fullmatch(marker.word):
        return _NOBODY_ELSE.search(rest) is not None
    is_partial = marker.force is Force.FORBID and _NOT_ALWAYS.match(lower_in_place(behind))
    return _DENIES.search(rest) is not None or bool(is_partial)


def is_double_negative(marker: Marker) -> bool:
    """Whether a marker forbids leaving something out: `never skip`, `do not forget to`."""
    return _DOUBLE_NEGATIVE.fullmatch(marker.word) is not None


def denies_skipping(marker: Marker) -> bool:
    """`never skip A or B`: both are demanded. `never forget to call A or B`: perhaps only one of them."""
    return is_double_negative(marker) and not marker.word.endswith(" to")


def only_describes(text: str) -> bool:
    text = lower_in_place(text)
    return _MAY_DESCRIBE.search(text) is not None and _DESCRIBES.search(text) is not None


def _marker(force: Force, found: re.Match[str]) -> Marker:
    severity: RuleSeverity = "low" if _WEAK.search(found[0]) else "medium"
    if _STRONG.search(found[0]) or _CRITICAL.search(found[0]):
        severity = "critical" if _CRITICAL.search(found[0]) else "high"
    return Marker(force, found.start(), found.end(), found[0], severity)


# -- exceptions --------------------------------------------------------------------------------------------------------

_EXCEPTION = re.compile(
    r"\W*(?:(?:and|so)\W+)?(?:(?:the )?(?:only |sole |one )?exceptions?(?: to (?:this|that))?\b|except\b|unless\b"
    r"|however\b|but\b|that said\b|nevertheless\b|nonetheless\b|having said that\b)"
)
"""how a sentence begins that takes something back from those before it"""
_LIMITATION = re.compile(
    r"\W*(?:otherwise\b|this (?:rule |limit )?(?:does not|doesn't|only) appl|(?:this|it|that) (?:is (?:only|not)|only"
    r"|may be|can be|does not|doesn't)\b|(?:you|it|they) (?:may|can) (?:still|also|skip|ignore|omit|use|do)\b|(?:only"
    r"|ignore|skip) (?:this|it|do (?:this|so))\b|it(?:'s| is) (?:ok|okay|fine|acceptable|allowed)\b|(?:not"
    r"|except) (?:including|for)\b|in (?:that|this|such|these) cases?\b|the only (?:time|case)\b|for (?:everything"
    r"|anything|all) else\b)"
)
"""how one begins that may take something back, if it stands in the same paragraph or below"""
_TAKES_BACK = re.compile(
    r"\bexempt|(?<!no )(?<!without )(?<!any )\bexceptions?\b|\bexcluded\b|\b(?:do|does) not apply\b|\bneeds? no\b"
    r"|\bneed not\b|\bno (?:\w+ ){1,2}(?:is|are) (?:needed|required|necessary)\b|\bnot (?:needed|required|necessary)\b"
    r"|\bwaived?\b|^(?!\W*(?:these|this|they|it|the above|such|my|our|your|rules?|system)\b).*\b(?:overrides?|prevails?"
    r"|takes? (?:precedence|priority))\b"
    r"|^\W*(?:for|with|in|on) [^.;]{1,60}?,? (?:you|it|they|this|that) (?:may|can|could|is|are)\b"
)
"""words of a sentence or of a part of one that take something back"""
_MAY_TAKE_BACK = re.compile(
    r"exempt|exception|excluded|not apply|needs? no|not needed|(?:is|are) needed|required|necessary|waive|overrid"
    r"|prevail|preceden|priority|(?:you|it|they|this|that) (?:may|can|could|is|are)\b"
)
"""one of these is in all that it finds"""


def has_exception(text: str) -> bool:
    text = lower_in_place(text)
    return _MAY_TAKE_BACK.search(text) is not None and _TAKES_BACK.search(text) is not None


def takes_back(text: str, *, is_tied: bool) -> bool:
    """Whether a sentence takes something back from those before it; `is_tied`: it stands in their paragraph."""
    text = lower_in_place(text)
    return bool(_EXCEPTION.match(text) or (is_tied and (_LIMITATION.match(text) or has_exception(text))))


# -- imperatives -------------------------------------------------------------------------------------------------------

_LEAD = re.compile(
    r"\W*(?:(?:and|but|then|also|please|first|next|finally|instead|otherwise|so|immediately|kindly)\b[,\s]*)*"
)
VERBS = """
    abort add address allow answer apologi[sz]e apply approve ask assist authenticate authori[sz]e avoid base begin
    book call cancel check choose cite close collect communicate complete compute confirm consult contact continue
    convert create decline delete deny deploy describe disclose display do double-check drop edit emit end ensure
    escalate execute explain extract fetch file finish follow format gather generate get give greet handle identify
    ignore include inform introduce invoke issue keep limit list log look make maintain mention message modify
    notify obtain offer open output pass pay perform pick place prefer present process produce prompt provide query
    quote read record redirect refer refund refuse reject remain remember remind remove rephrase repeat reply report
    request require reserve reset respond restrict retrieve return reveal review run say schedule search select send
    set share show sign start state stay stick stop store submit suggest summari[sz]e take tell terminate thank
    transfer translate treat try update use validate verify wait warn write be
"""
_IMPERATIVE = re.compile(
    rf"(?:{'|'.join(VERBS.split())})\b"
    r"(?!\s+(?:is|are|was|were|has|have|can|will|may|tool|tools|policy|contains|returns)\b)"
)


def imperative_at(text: str) -> tuple[int, int] | None:
    """The position of the verb in a bare imperative; None if the clause is not an imperative."""
    text = lower_in_place(text)
    begin = _LEAD.match(text)
    at = begin.end() if begin else 0
    found = _IMPERATIVE.match(text, at)
    return (found.start(), found.end()) if found else None
