"""Sentences that no reader has read.

`Forbidden tools: A, B` and `A: never` forbid by a label. A sentence that names a tool and is neither read nor
understood as a permission, a waiver or a description is listed as undecided, in any language: a prohibition in words
that the grammar does not know must not vanish.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from bylaw.comply.model import PromptRule
from bylaw.comply.prompt.answers import COMMON_WORDS
from bylaw.comply.prompt.binding import Bound, bind, names_tool
from bylaw.comply.prompt.clauses import MAX_SENTENCE, Clause, Sentence
from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.markers import VERBS, Force, find_marker, imperative_at, is_denied_twice, only_describes
from bylaw.comply.prompt.prohibitions import forbid_outright
from bylaw.comply.prompt.readings import QUOTED_WORD, Reading, extra_words, shorten, slug
from bylaw.comply.prompt.vocabulary import Tools, any_case, word_set

UNREAD_TOOL = "it names a tool, but its wording is not understood"
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
    r"\W*(?:the )?(?:tool |function )?(?P<name>[\w.-]+)(?:\([^)]*\))?(?: tool| function)?\W{1,4}"
    r"(?:(?:also|only|then|\w+ly) )?"
    rf"(?:(?:{'|'.join((*VERBS.split(), *_MORE_VERBS.split()))})(?:s|es)|(?:modif|appl|quer|cop|verif|notif|repl)ies"
    r"|is (?:an? |the |used |available|fine|ok|okay|safe|read-only))\b"
)
"""`get_order shows an order`, `get_order: returns …`"""
_TAKES_PLACE = any_case(r".*\b(?:follow|wait|expect|start|begin|run|finish|end|continue|complete)s$|.*\bis available$")
"""`issue_refund follows get_order` is an order, not a description"""
_LIMITS_PERMISSION = any_case(
    r"\b(?:only|sole|solely|except\w*|but|unless|provided|providing|assuming|given that|other than"
    r"|apart from|besides|(?:not|no) (?:earlier|before|sooner|until|otherwise))\b"
)
"""`you may call A after B only`, `you may call any tool but A`"""
_STATES_RULE = any_case(
    r"\b(?:rules?|polic(?:y|ies)|guidelines?|instructions?|requirements?|constraints?|principles?|important|remember)\b"
)
_SPEAKS = any_case(
    r"\b(?:says?|said|wrote|writes?|tells?|told|asks?|asked|repl\w+|answers?|responds?|users?|customers?)\b"
)
_MOST_AROUND = 8
"""words around a rule in quotes: `our first rule is "…"`"""
_ANSWER = any_case(
    r"\W*(?:(?:absolutely|definitely|certainly|of course|strictly|only|yes|no|nope|not|never|always)\b\W*)+"
)


_DENIES = any_case(
    r"\b(?:never|not|no|forbidden|only|must|prohibited|avoid|don't|last resort|emergenc\w+|sparingly"
    r"|rarely|caution|careful\w*|approval|reserved|restricted|limited|dangerous|risky|deprecated)\b"
)
_OTHER_DEMANDS = any_case(
    r"\b(?:is|are|has|have) (?:not )?to be\b|\bnot to be\b|\bno[- ]go\b|\bsupposed to\b|\b(?:your"
    r"|their) (?:responsibility|duty|job) (?:is )?to\b"
    r"|\bresponsible for\b|\bunacceptable\b|\boff the table\b|\bzero tolerance\b|\b(?:under no|in no) \w+"
    r"|\bby no means\b|\b(?:nothing|no (?:other )?(?:tool|function)s?) (?:but|except|other than|besides)\b"
    r"|:\s*(?:no|never|always|yes)\W*$|\bthe (?:only|sole) (?:\w+ ){1,4}?(?:you|the (?:agent"
    r"|assistant)) (?:may|can|should|must|are|is)\b"
)
"""demands in English that the grammar does not know"""
_BARE_DEMAND = any_case(
    r"\W*(?:please )?(?:prioriti[sz]e|assume|adhere|focus|think|plan|analy[sz]e|understand|consider|default|respect"
    r"|comply|protect|preserve|leave"
    r"|adapt|adjust|acknowledge|act|anticipate|balance|be|build|clarify|combine|commit|conduct|decide|delegate"
    r"|demonstrate|determine|double-check"
    r"|engage|evaluate|examine|favor|go|guide|help|implement|investigate|learn|let|match|mind|minimi[sz]e|monitor"
    r"|move|observe|optimi[sz]e"
    r"|organi[sz]e|pay attention|prepare|prevent|proceed|promote|push|put|reason|recommend|reflect|rely|resolve|save"
    r"|seek|skip|solve|speak|strive"
    r"|support|tailor|talk|test|track|understand|walk|watch|work)\b(?!\s+(?:is|are|was|were|has|have|can|will|may)\b"
    r"|\s*:)"
)
_FOREIGN = any_case(
    r"\b(?:niemals|nie|immer|stets|darfst?|dürfen|musst?|müssen|sollst?|sollten?|verboten|untersagt"
    r"|ausschließlich|antworte|nutze|verwende"
    r"|jamais|toujours|ne doit|doit|doivent|devez|tu dois|vous devez|interdit|n'\w+ pas|ne \w+ (?:pas|jamais)"
    r"|réponds|utilise"
    r"|nunca|siempre|debes?|deben|no debes?|prohibido|jamás|responde|utiliza|sempre|deve(?:m|s)?|proibido|não"
    r"|mai|vietato|devi|nooit|altijd|moet|mag niet|verboden|nigdy|zawsze|musisz|nie wolno|należy|zabronione"
    r"|asla|her zaman|yasak|zorunda)\b"
    r"|икогда|всегда"
    r"|нельзя|запрещ"
    r"|долже?н|обяза|не \w+йте"
    r"|不要|不得|不能|不可|不允许|禁止|必须|必須"
    r"|始终|永远|绝不|请勿|务必|应该|一定要|只能"
    r"|必ず|しないで|しては|ないでください"
    r"|てください|なければ|ないこと|絶対に|常に"
    r"|절대|반드시|금지|마세요|하지 마|항상|해야"
    r"|لا ت|يجب|دائم|أبد|मत "
    r"|हमेश|चाहिए|कभी"
)
"""words that demand or forbid in other languages"""


_OTHER_SCRIPT = re.compile("[\u0370-\u1fff\u3040-\u318f\u3400-\u9fff\uac00-\ud7af]")
_FEWEST_LETTERS, _FEWEST_BLANKS = 4, 3
_DEFINES = any_case(r"\b(?:means|refers? to|represents?)\b")
"""`"done" means that A was called`: what a word stands for may be part of a rule"""
_COMMON = {language: word_set(words) for language, words in COMMON_WORDS.items()}
_NOT_ONLY = any_case(r"\bnot (?:only|just|merely)\b")
_COUNTS = any_case(r"\b(?:once|twice|thrice|\w+ times|tries|attempts|exceed\w*|at most|more than|up to|per|max)\b")
_CALLS = any_case(r"[,;] (?:\w+ly )?(?:then )?(?:call|use|run|invoke)\b")


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


def forbids_by_label(sentence: Sentence) -> bool:
    """`Prohibited: …`."""
    return sentence.body > 0 and _FORBIDDING_LABEL.fullmatch(sentence.masked.partition(":")[0]) is not None


def is_passed_over(clause: Clause, sentence: Sentence) -> bool:
    """Whether a clause that gave no rule names a tool in words that are not understood."""
    start = 0 if clause.start <= sentence.body else clause.start
    text = sentence.masked[start : clause.end]
    if not names_tool(text, sentence):
        return _quotes_rule(sentence)
    if only_describes(text):
        return _DEFINES.search(text) is not None
    described = _DESCRIPTION.match(text)
    is_tool = described is not None and (described["name"] in sentence.tools.specs or "_" in described["name"])
    is_order = (
        described is not None and _TAKES_PLACE.match(described[0]) and names_tool(text[described.end() :], sentence)
    )
    describes = _TOOLS.match(text) or (is_tool and not is_order and not _CALLS.search(text))
    return not (describes and not _DENIES.search(text) and not _COUNTS.search(text)) and not _is_understood(
        clause, text
    )


def _quotes_rule(sentence: Sentence) -> bool:
    """`Rule 1: "Never call A."`: a rule that names a tool in quotes, unless somebody says it."""
    around = QUOTED_WORD.sub(" ", sentence.masked)
    is_stated = _STATES_RULE.search(around) or not re.search(r"\w", around)
    if _SPEAKS.search(around) or not is_stated or len(around.split()) > _MOST_AROUND:
        return False
    quoted = [one.text for one in sentence.literals if not one.is_code and names_tool(one.text, sentence)]
    return any(find_marker(text) or imperative_at(text) for text in quoted)


def list_answered(statements: Sequence[Statement], tools: Tools) -> Iterator[PromptRule]:
    """List the questions about tools whose answer may state a rule: `Is A allowed? No.`"""
    for question, answer in pairwise(statements):
        asked = question.text[:MAX_SENTENCE].rstrip(" *_`")
        if not asked.endswith("?") or answer.block != question.block or not _ANSWER.match(answer.text[:MAX_SENTENCE]):
            continue
        if names_tool(asked, Sentence(asked, asked, tools)):
            reading = unread_reading(asked)
            text = f"{asked} {answer.text}"
            yield PromptRule(
                rule_id=slug(reading.name),
                description=text,
                start=question.start,
                end=answer.end,
                undecided=reading.undecided,
            )


def only_permits(sentence: Sentence) -> bool:
    """Whether all that a sentence says is that something is allowed or not needed."""
    marker = find_marker(sentence.masked)
    is_limited = _LIMITS_PERMISSION.search(sentence.masked) is not None
    return marker is not None and marker.force in (Force.PERMIT, Force.WAIVE) and not is_limited


def _is_understood(clause: Clause, text: str) -> bool:
    """Permissions and waivers demand nothing, unless another word denies them."""
    marker = find_marker(clause.main.text, clause.main.start)
    if marker is None or marker.force not in (Force.PERMIT, Force.WAIVE):
        return False
    if marker.force is Force.PERMIT and _COUNTS.search(text):  # `A can be tried 3 times`
        return False
    if _LIMITS_PERMISSION.search(_NOT_ONLY.sub(" ", text)):
        return False
    start = clause.main.start
    before, behind = clause.main.text[: marker.start - start], clause.main.text[marker.end - start :]
    return not is_denied_twice(marker, before, behind)


def carries_demand(text: str) -> bool:
    """Whether a sentence that gave no rule demands something in other words, or in another language."""
    return bool(_OTHER_DEMANDS.search(text) or _BARE_DEMAND.match(text) or _FOREIGN.search(text) or _is_foreign(text))


def _is_foreign(text: str) -> bool:
    """Whether a sentence is in another language: by its script, or by the common words of a language."""
    if text.isascii() and text.count(" ") < _FEWEST_BLANKS:
        return False
    if len(_OTHER_SCRIPT.findall(text)) >= _FEWEST_LETTERS:
        return True
    words = set(re.findall(r"[^\W\d_]+", text.lower()))
    english = len(words & _COMMON["english"])
    most = max(len(words & known) for language, known in _COMMON.items() if language != "english")
    has_accents = not text.isascii() and re.search(r"[^\W\d_a-zA-Z]", text) is not None
    return most > english and (most > 1 or has_accents)


def unread_reading(text: str, *, names_tool: bool = True) -> Reading:
    why = UNREAD_TOOL if names_tool else "it demands something, but its wording is not understood"
    return Reading(name=shorten(re.sub(r"\W+", " ", text), 50), undecided=why)
