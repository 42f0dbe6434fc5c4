"""Whether a response is a refusal: the provider ended it as one, or its text begins by declining.

A refusal is said by the speaker (`I`, `we`, or nobody: "unable to assist"), near the beginning and at the start of its
sentence, and is about the request: "I can't help with that". Not being able to *find* something is a fact, what *you*
cannot do is advice, and "I can't proceed until you confirm" is a question. Only words decide: a refusal in other words
is missed, and a denial by policy ("I can't process this refund") counts as one.
"""

from __future__ import annotations

import re

from bylaw.model.events import Response

STOP_REASONS = frozenset(
    {
        "refusal",  # Anthropic
        "content_filter",  # OpenAI, Azure, Mistral
        "content_filtered",  # Bedrock
        "guardrail_intervened",  # Bedrock
        "safety",  # Gemini, as the four below
        "image_safety",
        "prohibited_content",
        "blocklist",
        "spii",
        "error_toxic",  # Cohere
        "sensitive",  # Zhipu
        "blocked",  # gateways, as the one below
        "moderation",
    }
)
"""stop reasons of refusals; compared in lower case, with `_` between words"""

NEAR = 200
"""a refusal's sentence starts within this many characters"""


def is_refusal(response: Response) -> bool:
    return _is_refusal_stop(response.stop_reason) or bool(response.text and says_refusal(response.text))


def says_refusal(text: str) -> bool:
    """Whether a sentence near the beginning of the text declines."""
    head = text[: 2 * NEAR]
    if not _may_refuse(head.lower().replace("’", "'")):
        return False
    opening = True
    for found in _SENTENCE.finditer(head):
        if found.start() >= NEAR:
            break
        sentence = _normalize_sentence(found.group())
        if _declines(sentence, opening):
            return True
        opening = opening and bool(_COURTESY.match(sentence))
    return False


def _is_refusal_stop(reason: str | None) -> bool:
    if not reason:
        return False
    plain = reason.lower().replace("-", "_").replace(" ", "_")
    return plain.rpartition(".")[2].removeprefix("finish_reason_") in STOP_REASONS


def _may_refuse(head: str) -> bool:
    """A fast test that every refusal below passes and most other texts fail."""
    if "decline" in head or "refuse" in head or "prohibited" in head or "je ne" in head or "не " in head:
        return True
    return _NO.search(head) is not None and _SAYS_NO.search(head) is not None


def _normalize_sentence(sentence: str) -> str:
    """Lower case, single blanks, and contractions expanded, so that each pattern is written once."""
    sentence = " ".join(sentence.lower().replace("’", "'").replace("‘", "'").replace("ё", "е").split())  # noqa: RUF001
    for short, long in _EXPANDED:
        sentence = sentence.replace(short, long)
    return sentence


def _declines(sentence: str, opening: bool) -> bool:
    for stem, pattern in _PATTERNS:
        found = pattern.search(sentence) if stem in sentence else None
        if found is None or (found.lastgroup == "opening" and not opening):
            continue
        if _may_lead(sentence[: found.start()]) and not _NOT_YET.search(sentence, found.end()):
            return True
    return False


def _may_lead(lead: str) -> bool:
    """Before a refusal may stand an apology, a "but", or "as an AI". After anything else it is a report or a quote."""
    turns = [found.end() for found in _BUT.finditer(lead)]
    conceded, rest = (lead[: turns[-1]], lead[turns[-1] :]) if turns else ("", lead)
    return not _REPORTS.search(conceded) and all(_is_opener(piece) for piece in _PIECE.findall(rest))


def _is_opener(piece: str) -> bool:
    bare = piece.strip(_MARKS)
    goes_on = piece.rstrip()[-1:] in _BREAKS
    return not bare or bool(_OPENER.fullmatch(bare) or (goes_on and _LONG_OPENER.match(bare)))


# -- the patterns. No quantifier is nested in another ------------------------------------------------------------------

# Both start with a letter, so the engine can skip to it; the second is stricter and slower.
_NO = re.compile(r"n(?:not|able|'t|ot |icht|o p[uo]|st [mo]|comf)")
_SAYS_NO = re.compile(
    r"n(?:not|able|(?<=can)'t|(?<=won)'t|(?<=don)'t|(?<=can n)ot |(?<=will n)ot |(?<=do n)ot "
    r"|'t (?:able|allowed|something)"
    r"|ot (?:able|going to|permitted|allowed|authori|designed|programmed|supposed|something|comfortable)"
    r"|st (?:my|our) |comfortable|icht|o p[uo])"
)
_EXPANDED = (
    *(("can't", "cannot"), ("can not", "cannot"), ("won't", "will not"), ("n't", " not"), ("'m ", " am ")),
    *(("'re ", " are "), ("'s ", " is "), ("'ll ", " will "), ("'d ", " would "), (" - ", ", ")),
)
_BREAKS = ",;:—–"
_MARKS = f" {_BREAKS}-*_#>()[]🚫⚠️❌"
_SENTENCE = re.compile(r"(?:[^.!?…\n]|\n(?=[a-zа-я]))+[.!?…]*")  # noqa: RUF001
"""a line that starts in lower case continues the one before"""
_PIECE = re.compile(rf"[^{_BREAKS}]+[{_BREAKS}]*\s*")

_I = r"\b(?:i|we)"
# "help but smile", "help noticing", "do that again" and "provide an exact date" are no refusals.
_HELP = (
    r"(?:help\b(?! but\b| it\b| \w+ing\b)|(?:assist|aid|comply|engage|participate|facilitate|accommodate)\b|fulfil"
    r"|do (?:that|this|so|it|what)\b(?! again)|support (?:that|this|your|you|any|such)\b)"
)
_DO = (
    r"(?:provide\b(?! (?:an? |the )?(?:exact|precise|specific|definite))"
    r"|(?:share|process|continue|proceed|answer|discuss|disclose|reveal|generate|create|write|produce|perform|offer|advise"
    r"|grant|approve|respond to|agree to|carry out|talk about|tell you how to|be part of|be involved)\b"
    r"|(?:complete|honou?r) (?:this|that|your)\b|give (?:you|out|any|that|this|legal|medical|financial)\b"
    r"|make (?:that|this|any|an exception|exceptions)\b)"
)
_ADVERB = (
    r"(?: (?:really|actually|directly|personally|legally|ethically|simply|just|also|further|knowingly|safely|therefore"
    r"|in good conscience))?"
)
# `opening`: declines only as the first sentence; after others it follows from them.
_WHAT = rf"{_ADVERB} (?:{_HELP}|(?P<opening>{_DO}))"
_ALLOWED = r"(?:permitted|allowed|authori[sz]ed|designed|programmed|supposed|going)"
_MACHINE = r"(?:ai|artificial|language model|large language|virtual|automated)\b"
_OF_A_MACHINE = r"(?:access|browse|predict|diagnose|recommend|take|form|hold|endorse)\b"
_MY_RULES = r"(?:my|our) (?:\w+ )?(?:guidelines|policy|policies|instructions|programming|principles|values)\b"

_ENGLISH = (
    ("cannot", rf"{_I} cannot{_WHAT}"),
    ("cannot", rf"^as an? {_MACHINE}.*\bi cannot {_OF_A_MACHINE}"),
    ("cannot", r"\b(?:i|we) (?P<opening>cannot[.!…]*$)"),
    ("cannot", rf"^cannot {_HELP}[^?]*$"),
    ("will not", rf"{_I} will not(?: be able to)?{_WHAT}"),
    ("will not", r"\b(?:i|we) (?P<opening>will not[.!…]*$)"),
    ("able to", rf"{_I} (?:am|are) (?:unable|not able) to{_WHAT}"),
    ("able to", rf"^as an? {_MACHINE}.*\bi am (?:unable|not able) to {_OF_A_MACHINE}"),
    ("able to", rf"^(?:unable|not able) to (?:{_HELP}|(?:process|complete) (?:this|that|your) request)[^?]*$"),
    ("not ", rf"{_I} (?:am|are) not {_ALLOWED} to{_WHAT}"),
    ("do not have", rf"{_I} do not have (?:the )?(?:ability|permission|authority|authori[sz]ation) to{_WHAT}"),
    ("i do not", r"\bi (?P<opening>do not (?:provide|assist with|help with|engage in|condone|generate|create)\b)"),
    ("decline", rf"{_I} (?:(?:must|have to|need to|will have to|would like to) )?(?:\w+ly )?decline\b"),
    ("refuse", rf"{_I} (?:(?:must|have to|need to|will have to) )?(?:\w+ly )?refuse\b(?! to believe)"),
    ("comfortable", rf"{_I} (?:(?:am|are) not comfortable|(?:am|are) uncomfortable|do not feel comfortable) "),
    ("prohibited", rf"{_I} (?:am|are) prohibited from "),
    ("something", rf"\b(?:that|this|it) is (?:simply )?something {_I} (?:cannot|will not|am unable|am not able)\b"),
    ("something", rf"\b(?:that|this|it) is not something {_I} (?:can|am able to|are able to) (?:do\b|{_HELP}|{_DO})"),
    ("against", rf"\b(?:that|this|it|your)(?: request)? (?:is|goes|would be|would go) against {_MY_RULES}"),
)
_GERMAN_HELP = r"(?:weiter)?(?:helfen|behilflich|unterstützen|beantworten|tun|machen|bereitstellen|bearbeiten|erfüllen)"
_OTHER_LANGUAGES = (
    (
        "nicht",
        r"\bich (?:kann|darf|werde) (?:(?:dir|ihnen|euch|das|dies|dabei|damit|hierbei|leider|diese|anfrage) ){0,4}"
        rf"nicht {_GERMAN_HELP}",
    ),
    (
        "nicht",
        r"\b(?:dabei|damit|hierbei|das|dies) (?:kann|darf|werde) ich (?:(?:dir|ihnen|euch|leider) ){0,2}nicht"
        rf"(?: {_GERMAN_HELP}|[.!…]*$)",
    ),
    (
        "no p",
        r"\bno (?:puedo|podemos|podré) (?:ayudar|asistir|proporcionar|cumplir|hacer eso|hacerlo|compartir|continuar"
        r"|procesar|responder a|ofrecer|realizar|generar|crear|brindar|facilitar)",
    ),
    (
        "je ne",
        r"\bje ne (?:peux|puis|suis)(?: malheureusement)? pas (?:(?:en mesure de|autorisée? à|capable de) )?"
        r"(?:vous |te |y |t'){0,2}"
        r"(?:aider|assister|fournir|répondre à|faire (?:cela|ça)|partager|continuer|traiter|donner|générer|créer)",
    ),
    (
        "не ",
        r"(?:\bя |^)не (?:могу|смогу|буду|вправе|имею права) (?:(?:вам|тебе|вас|с этим|в этом) ){0,2}"  # noqa: RUF001
        r"(?:помочь|помогать|предостав|выполн|ответить на|отвечать на|продолж|сделать это|это сделать|этого делать"
        r"|это делать|поделиться|обработать|обсужд)",
    ),
)
_PATTERNS = tuple((stem, re.compile(pattern)) for stem, pattern in (*_ENGLISH, *_OTHER_LANGUAGES))
"""a word that the sentence has to contain, and the pattern"""

_NOT_YET = re.compile(
    r"\b(?:until|unless|without|before (?:you|i|we)|yet|errors?|timed out|unavailable|is down|was declined|failed"
    r"|has expired)\b"
)
"""words after a refusal that make it a question or the report of a fault"""
_BUT = re.compile(r"\b(?:but|however|aber|pero|mais|но)\b")
_REPORTS = re.compile(r"^\W*(?:if|when|whenever|in case)\b|[\"“”«»]")
_COURTESY = re.compile(
    r"\W*(?:hello|hi|hey|dear|thank|thanks|sorry|apologies|my apologies|no|great question|good \w+"
    r"|i (?:am|understand|appreciate|apologi[sz]e|hear|see|know)|we (?:are sorry|apologi[sz]e|understand|appreciate))\b"
)
"""sentences of courtesy, which do not count as the first sentence"""
_OPENER = re.compile(
    r"(?:i|we) (?:am|are)(?: (?:very|so|really|truly|deeply))? (?:sorry|afraid)(?: to say)?(?: that)?"
    r"|(?:sorry|apologies|my apologies|(?:i|we) apologi[sz]e|unfortunately|regrettably|sadly|no|oh|hello|hi|hey|well)"
    r"|(?:es )?tut mir leid|entschuldigung|leider|lo siento(?: mucho)?|lamentablemente|disculp[ea]"
    r"|(?:je suis )?désolée?|malheureusement|к сожалению|извините|простите|мне жаль|нет"
    rf"|as an? [^\"“]*|(?:so|and)|i am (?:just |only )?an? (?:\w+ )?{_MACHINE}[^\"“]*"
)
_LONG_OPENER = re.compile(
    r"(?:while|although|though|i (?:understand|appreciate|know|see|hear|would love|would like)|(?:i|we) apologi[sz]e"
    r"|apologies for|(?:i|we) (?:am|are)(?: \w+)? sorry (?:for|about)|thank you|thanks)\b"
)
"""openers that continue up to a comma"""
