"""Quoted text that the agent must or must not say: `never say "guaranteed"`, `end every answer with "Thank you"`.

The main part of the clause has to fit one of a few forms as a whole, so that every word of it is understood. Quoted
text in any other place is a value, an example, a file or a command, and demands nothing of what the agent says.
"""

from __future__ import annotations

import re

from bylaw.comply.prompt.dialogue import Texts, literal_words
from bylaw.comply.prompt.readings import EVERY_ANSWER, Draft, Reading, View, formula
from bylaw.comply.prompt.vocabulary import any_case

_LIKE_THESE = "it also forbids other texts of this kind"
_EXAMPLES_CONFIDENCE = 0.7

LEAD = (
    r"(?:(?:you|the (?:agent|assistant|model|bot)|please|also|and|so|must|should|shall|will|may|can|could|always|never"
    r"|not|do|don't|mustn't|shouldn't|can't|cannot|won't|ever|even|strictly|absolutely|avoid|refrain from|be sure to"
    r"|be sure not to|make sure to|make sure you|make sure not to|ensure you|ensure that you|remember to|have to"
    r"|need to|are to|are not|are|is|it|strictly|forbidden|prohibited|allowed|from|to|under no circumstances|forget to"
    r"|fail to|it is forbidden to|important|critical|note)[ ,:!]+)*"
)
ANSWER = (
    r"(?:(?:in|of|to|your|the|each|every|all|any|an?|its|final|last|first|text|written|user-facing|visible|assistant"
    r"|agent's"
    r"|single) )*(?:answers?|responses?|repl(?:y|ies)|messages?|outputs?|turns?|conversations?|chats?|sessions?)"
)
FORBIDDEN_BEHIND = (
    r"(?: (?:is|are|remains?)(?: (?:strictly|absolutely|expressly|explicitly))? (?:forbidden|prohibited|banned"
    r"|disallowed|off limits|not (?:allowed|permitted))| (?:must|may|should|can|shall)(?: not|not| never) be (?:run"
    r"|used|executed|issued|made|included))?"
)
"""`… is forbidden`, `… must never be used`"""
_WORDS = (
    r"(?:(?:the|a|an|this|these|that|exact|exactly|following|literal|any of|either|one of|both) )*(?:(?:words?"
    r"|phrases?|terms?"
    r"|texts?|sentences?|lines?|strings?|expressions?|disclaimers?|greetings?|statements?|notes?|names?|signatures?) )?"
)
_TEXTS = r"§(?:(?: ?, ?| ?/ ?| )(?:(?:or|and|nor) )?(?:the (?:words?|phrases?|terms?) )?§)*"
_PEOPLE = r"(?:users?|customers?|clients?|callers?|guests?|visitors?|patients?|students?|them|anyone)"
_TO = rf"(?: (?:tools?|functions?|commands?|feature))?(?: (?:to|with|for) (?:(?:the|your|any|all|our) )?{_PEOPLE})?"
_WHERE = rf"(?: (?:in|within|throughout|at the (?:very )?(?:start|beginning|end) of|to) {ANSWER})?"
_WHEN = (
    r"(?: (?:at least once|once|verbatim|exactly|word for word|every time|anywhere|at the (?:start|beginning|end)))*"
)
_OPENING = r"(?:begin|start|open|prefix|prepend)(?:s|ning|ing)?"
_CLOSING = r"(?:end|finish|close|conclude|sign off)(?:s|ing)?"
_SAY = (
    r"(?:say(?:ing)?|mention(?:ing)?|utter(?:ing)?|stat(?:e|ing)|refer(?:ring)? to|speak(?:ing)? of"
    r"|tell(?:ing)? (?:the |your |any )?(?:users?|customers?|clients?|callers?)(?: that)?)"
)
_WRITE = r"(?:(?:includ|writ|us)(?:e|ing)|output(?:ting)?|put(?:ting)?|(?:print|add|append)(?:ing)?)"
_NAMED_WORDS = r"(?:the |any of the |these )?(?:exact )?(?:words?|phrases?|terms?|expressions?|names?|sentences?) "

_REQUIRED = any_case(
    rf"{LEAD}(?:{_OPENING}|{_CLOSING})(?: {ANSWER})?{_TO} (?:with|by saying) {_WORDS}{_TEXTS}{_WHEN}|{LEAD}(?:{_SAY}"
    rf"|{_WRITE}) {_WORDS}{_TEXTS}{_TO}{_WHEN}{_WHERE}{_WHEN}|(?:in )?{ANSWER} {LEAD}(?:(?:{_OPENING}|{_CLOSING}) with"
    rf"|contains?|includes?|mentions?|has) {_WORDS}{_TEXTS}{_WHEN}{_WHERE}|{LEAD}(?:reply|respond"
    rf"|answer){_TO} with {_WORDS}{_TEXTS}{_WHEN}|{LEAD}greet (?:(?:the|your|every|each|all|new) )*(?:users?|customers?"
    rf"|clients?|callers?) with {_WORDS}{_TEXTS}"
)
_SAYS_WHERE = any_case(
    r"\b(?:always|every|each|all|any|your|final|last|first|conversation|chat|session|at least once|greet)\b"
)
_FORBIDDEN = any_case(
    rf"{LEAD}{_SAY} {_WORDS}{_TEXTS}{_TO}{_WHEN}{_WHERE}|{LEAD}{_WRITE} {_NAMED_WORDS}{_TEXTS}{_TO}{_WHERE}"
    rf"|{LEAD}{_WRITE} {_WORDS}{_TEXTS}{_TO} (?:in|within|at the (?:start|beginning|end) of) {ANSWER}"
    rf"|(?:in )?{ANSWER} {LEAD}(?:contain|include|mention|say) {_WORDS}{_TEXTS}|(?:{LEAD}{_NAMED_WORDS}{_TEXTS} (?:is"
    rf"|are|must be|should be)? ?(?:forbidden|prohibited|banned|not allowed|avoided))|{LEAD}{_NAMED_WORDS}{_TEXTS}"
)
_FORBIDDEN_AT = any_case(
    rf"{LEAD}(?:(?P<open>{_OPENING}|(?:reply|respond|answer)(?:ing)?)|{_CLOSING})(?: {ANSWER})?{_TO} (?:with"
    rf"|by saying) {_WORDS}{_TEXTS}|{ANSWER} {LEAD}(?:(?P<opens>{_OPENING})|{_CLOSING}) with {_WORDS}{_TEXTS}"
)
_EXAMPLES = any_case(
    rf"{LEAD}(?:{_SAY} |{_WRITE} )?(?:(?!(?:should|must|may|can|the) )[\w-]+,? ){{0,4}}(?:(?P<open>preambles?"
    rf"|openers?|openings?|introductions?"
    r"|acknowledge?ments?)|phrases|phrasing|words|expressions|fillers?|clich[eé]s|pleasantries)"
    rf"(?: such as| like| e\.g\.,?|,)?(?: [\w-]+)? \(?(?:e\.g\.,? |like |such as )?{_TEXTS}\)?(?: or [\w -]+)?"
)
"""`avoid phrases such as "Great question"`: the quoted texts, and others like them"""
_OF_TOOL = re.compile(r"§ (?:tool|function|command|feature)s?\b")
_TOOL_WORD = r"\W{0,3}(?:tool|function|command|feature)"
_PLACEHOLDER = re.compile(r"[<{\[].*[>}\]]|\.\.\.|…|\b[XYZN]\b|__|\bfoo\b")
_CONVERSATION = any_case(
    r"\b(?:conversation|chat|session|at least once|first (?:message|reply|response|answer)|greet)\b"
)
_FINAL = any_case(r"\b(?:final|last) (?:answer|message|reply|response|output)\b")
_OPENS = any_case(rf"\b{_OPENING}\b|\bfirst\b|\bgreet\b|\bat the (?:start|beginning)\b")
_OPENS_MESSAGE = any_case(rf"\b{_OPENING}\b.*\bfirst (?:message|reply|response|answer)\b")
_ENDS = any_case(rf"\b{_CLOSING}\b|\bat the (?:very )?end\b|\bappend\b")
_ANY_OF = any_case(r"\bor\b|\bone of\b|\beither\b")


def quoted_shape(view: View) -> str:
    """The main part with `§` for each quoted text."""
    begin, text, at = view.clause.main.start, "", 0
    for literal in view.literals():
        text += f"{view.main[at : literal.start - begin]} § "
        at = literal.end - begin
    return f"{text}{view.main[at:]}"


def _shape(view: View) -> tuple[str, Texts]:
    """The same without marks around it, and the quoted texts."""
    text = re.sub(r"\s+", " ", quoted_shape(view)).strip(" .,;:!*-–—").replace("( ", "(").replace(" )", ")")
    return text, Texts(tuple(one.text for one in view.literals() if one.text.strip()))


def read_required_text(view: View) -> Reading | None:
    """`always end your answer with "Thank you"`; undecided where it does not say when, or under a condition."""
    shape, texts = _shape(view)
    if "§" not in shape or not _REQUIRED.fullmatch(shape):
        return None
    name = f"say {texts}"
    if view.clause.parts:
        return Reading(name=name, undecided=f"no event shows whether `{view.quote(view.clause.parts[0])}` holds")
    if any(_PLACEHOLDER.search(text) for text in texts.literals):
        return Reading(name=name, undecided="the text to say has a part that is filled in")
    if not _SAYS_WHERE.search(shape):
        return Reading(name=name, undecided="it does not say when")
    groups = [texts] if _ANY_OF.search(shape) else [Texts((text,)) for text in texts.literals]
    drafts = tuple(_require(shape, one) for one in groups)
    return Reading(name=name, drafts=drafts, required=f"say: {texts}", ceiling=EVERY_ANSWER)


def _require(shape: str, texts: Texts) -> Draft:
    """Where the text has to be said: in the last answer, in the first one, in every answer, or once."""
    if _FINAL.search(shape):
        return formula(f"G ((text(/\\S/) & !X F text(/\\S/)) -> {_at_its_place(shape, texts)})", "text")
    if _CONVERSATION.search(shape):
        if _OPENS.search(shape):
            said = texts.said(before=r"^\s*") if _OPENS_MESSAGE.search(shape) else texts.said()
            return formula(f"!text(/\\S/) W {said}", "text")
        if not _ENDS.search(shape):
            return formula(f"F {texts.said()}", "text")
        return formula(f"G ((text(/\\S/) & !X F text(/\\S/)) -> {texts.said()})", "text")
    return formula(f"G ((text(/\\S/) & !tool(*)) -> {_at_its_place(shape, texts)})", "text", over="turns")


def _at_its_place(shape: str, texts: Texts) -> str:
    """`begin with`, `end with`, or anywhere in the answer."""
    if _OPENS.search(shape):
        return texts.said(before=r"^\s*")
    return texts.said(after=r"\W*$") if _ENDS.search(shape) else texts.said()


def read_forbidden_text(view: View) -> Reading | None:
    """`never say "guaranteed"`, `do not begin answers with "Sure"`, `avoid phrases such as "Great question"`."""
    shape, texts = _shape(view)
    if "§" not in shape:
        return None
    at = _FORBIDDEN_AT.fullmatch(shape)
    examples = None if at else _EXAMPLES.fullmatch(shape)
    if not (at or examples or _FORBIDDEN.fullmatch(shape)):
        return None
    name = f"never say {texts}"
    if view.clause.parts:
        return Reading(name=name, undecided=f"no event shows whether `{view.quote(view.clause.parts[0])}` holds")
    words = [re.sub(r"\s*(?:\.\.\.|…)$", "", text).rstrip(",") for text in texts.literals]
    if not all(words) or any(_PLACEHOLDER.search(text) for text in words):
        return Reading(name=name, undecided="the text has a part that is filled in")
    opens = (at and (at["open"] or at["opens"])) or (examples and examples["open"])
    before, after = (r"^\s*" if opens else ""), (r"\W*$" if at and not opens else "")
    return Reading(
        name=name,
        drafts=tuple(_forbid(text, before, after or (_TOOL_WORD if _OF_TOOL.search(shape) else "")) for text in words),
        forbidden=f"say: {texts}",
        undecided=_LIKE_THESE if examples else None,
        ceiling=_EXAMPLES_CONFIDENCE if examples else 1.0,
    )


def _forbid(text: str, before: str, after: str) -> Draft:
    """`Sure` alone is the interjection, which `make sure` is not: one capitalised word is searched for as it is."""
    pattern = f"{before}{literal_words(text)}{after}"
    is_interjection = re.fullmatch(r"[A-Z][a-z]+", text) is not None
    return Draft("forbidden_text", {"text": pattern, "regex": True, "ignore_case": not is_interjection}, "text")
