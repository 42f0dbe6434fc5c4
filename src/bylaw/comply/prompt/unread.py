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


_DENIES = any_case(r"\b(?:never|not|no|forbidden|only|must|prohibited|avoid|don't)\b")
_OTHER_DEMANDS = any_case(
    r"\b(?:is|are|has|have) (?:not )?to be\b|\bnot to be\b|\bno[- ]go\b|\bsupposed to\b|\b(?:your"
    r"|their) (?:responsibility|duty|job) (?:is )?to\b"
    r"|\bresponsible for\b|\bunacceptable\b|\boff the table\b|\bzero tolerance\b|\b(?:under no|in no) \w+"
    r"|\bby no means\b|:\s*(?:no|never|always|yes)\W*$"
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
    r"\b(?:niemals|nie|immer|stets|darfst?|d\u00fcrfen|musst?|m\u00fcssen|sollst?|sollten?|verboten|untersagt"
    r"|ausschlie\u00dflich|antworte|nutze|verwende"
    r"|jamais|toujours|ne doit|doit|doivent|devez|tu dois|vous devez|interdit|n'\w+ pas|ne \w+ (?:pas|jamais)"
    r"|r\u00e9ponds|utilise"
    r"|nunca|siempre|debes?|deben|no debes?|prohibido|jam\u00e1s|responde|utiliza|sempre|deve(?:m|s)?|proibido|n\u00e3o"
    r"|mai|vietato|devi|nooit|altijd|moet|mag niet|verboden|nigdy|zawsze|musisz|nie wolno|nale\u017cy|zabronione"
    r"|asla|her zaman|yasak|zorunda)\b"
    r"|\u0438\u043a\u043e\u0433\u0434\u0430|\u0432\u0441\u0435\u0433\u0434\u0430"
    r"|\u043d\u0435\u043b\u044c\u0437\u044f|\u0437\u0430\u043f\u0440\u0435\u0449"
    r"|\u0434\u043e\u043b\u0436\u0435?\u043d|\u043e\u0431\u044f\u0437\u0430|\u043d\u0435 \w+\u0439\u0442\u0435"
    r"|\u4e0d\u8981|\u4e0d\u5f97|\u4e0d\u80fd|\u4e0d\u53ef|\u4e0d\u5141\u8bb8|\u7981\u6b62|\u5fc5\u987b|\u5fc5\u9808"
    r"|\u59cb\u7ec8|\u6c38\u8fdc|\u7edd\u4e0d|\u8bf7\u52ff|\u52a1\u5fc5|\u5e94\u8be5|\u4e00\u5b9a\u8981|\u53ea\u80fd"
    r"|\u5fc5\u305a|\u3057\u306a\u3044\u3067|\u3057\u3066\u306f|\u306a\u3044\u3067\u304f\u3060\u3055\u3044"
    r"|\u3066\u304f\u3060\u3055\u3044|\u306a\u3051\u308c\u3070|\u306a\u3044\u3053\u3068|\u7d76\u5bfe\u306b|\u5e38\u306b"
    r"|\uc808\ub300|\ubc18\ub4dc\uc2dc|\uae08\uc9c0|\ub9c8\uc138\uc694|\ud558\uc9c0 \ub9c8|\ud56d\uc0c1|\ud574\uc57c"
    r"|\u0644\u0627 \u062a|\u064a\u062c\u0628|\u062f\u0627\u0626\u0645|\u0623\u0628\u062f|\u092e\u0924 "
    r"|\u0939\u092e\u0947\u0936|\u091a\u093e\u0939\u093f\u090f|\u0915\u092d\u0940"
)
"""words that demand or forbid in other languages"""


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
    if not names_tool(text, sentence) or only_describes(text):
        return False
    describes = _TOOLS.match(text) or _DESCRIPTION.match(text)
    return not (describes and not _DENIES.search(text)) and not _is_understood(clause)


def only_permits(sentence: Sentence) -> bool:
    """Whether all that a sentence says is that something is allowed or not needed."""
    marker = find_marker(sentence.masked)
    return marker is not None and marker.force in (Force.PERMIT, Force.WAIVE)


def _is_understood(clause: Clause) -> bool:
    """Permissions and waivers demand nothing, unless another word denies them."""
    marker = find_marker(clause.main.text, clause.main.start)
    if marker is None or marker.force not in (Force.PERMIT, Force.WAIVE):
        return False
    start = clause.main.start
    before, behind = clause.main.text[: marker.start - start], clause.main.text[marker.end - start :]
    return not is_denied_twice(marker, before, behind)


def carries_demand(text: str) -> bool:
    """Whether a sentence that gave no rule demands something in other words, or in another language."""
    return bool(_OTHER_DEMANDS.search(text) or _BARE_DEMAND.match(text) or _FOREIGN.search(text))


def unread_reading(text: str, *, names_tool: bool = True) -> Reading:
    what = "it names a tool" if names_tool else "it demands something"
    return Reading(name=shorten(re.sub(r"\W+", " ", text), 50), undecided=f"{what} in words that are not read")
