"""Dialogue: whether the user agreed to a call, and texts that the agent must or must not say.

Whether the user agreed is found by patterns, so it is a likely reading, not a certain one: `sounds good, but use the
other card` agrees by pattern. A message agrees if it begins with or clearly contains a word of assent, and neither
begins with nor contains a clear refusal. Texts must be in quotes (`never say "guaranteed"`); without them nothing
can be searched for, and the rule stays undecided.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.prompt.clauses import Literal
from bylaw.comply.prompt.readings import (
    EVERY_ANSWER,
    NO_TIME,
    ArgTest,
    Draft,
    Reading,
    View,
    atom,
    either,
    formula,
    literal_pattern,
    text_pattern,
)
from bylaw.comply.prompt.vocabulary import any_case

AGREEMENT_CONFIDENCE = 0.7

AGREES = (
    r"^\W*(?:yes|yeah|yep|yup|ya|sure|ok|okay|k|fine|correct|right|exactly|absolutely|definitely|certainly|of course"
    r"|please do|go ahead|go for it|confirm|confirmed|confirming|proceed|do it|sounds (?:good|great|right|fine)"
    r"|that works|works for me|looks (?:good|right|correct)|perfect|great|approved?|agreed?|that'?s (?:right|fine"
    r"|correct|ok|okay|good)|please (?:proceed|go|do|continue|confirm)|let'?s (?:do|go|proceed))\b|\b(?:yes|go ahead"
    r"|do it|i (?:hereby )?(?:do )?(?:confirm|agree|approve|consent|authori[sz]e)|please proceed|you (?:may"
    r"|can) proceed|happy to proceed|like to proceed|want to proceed|confirmed|(?:let'?s|just|let'?s just) proceed"
    r"|(?:everything|it|that|this|all) looks (?:good|right|correct|great|fine))\b"
)
REFUSES = (
    r"^\W*(?:no|nope|nah|not|never)\b|\b(?:but no|not yet|hold on|hold off|wait a|rather not|never ?mind"
    r"|changed my mind|no longer)\b|\b(?:do not|don'?t) (?:do|proceed|go|book|cancel|delete|drop|remove|send|continue"
    r"|run|make|refund|change|want (?:you )?to)\b"
)

_ASKS_USER = any_case(
    r"\b(?:confirm|check|clear|verify|agree)(?:s|ed|ing|ation)?\b[^.]{0,30}?\b(?:with|from|by) (?:the |your )?(?:user"
    r"|customer|client|caller|them|requester)|\b(?:user|customer|client|caller|requester|they|them)(?:'s|s'"
    r"|s)?\b[^.]{0,40}?\b(?:confirm|agree|consent|approv|permission|yes\b|go-ahead|authori[sz]|acknowledg)"
    r"|\b(?:explicit|user|customer|verbal|prior|their|written)\b[^.]{0,20}?\b(?:confirmation|consent|approval"
    r"|permission|agreement|go-ahead|yes)\b|\bask(?:ing|s|ed)?\b[^.]{0,30}?\b(?:user|customer|client|caller"
    r"|them)\b[^.]{0,20}?\b(?:to confirm|for (?:\w+ )?(?:confirmation|permission|approval|consent))"
    r"|\bask(?:ing)?\b (?:for )?(?:confirmation|permission|consent)\b|\b(?:get|obtain|seek|request|wait for"
    r"|receiv)\w* (?:\w+ )?(?:confirmation|permission|consent|a yes|an explicit yes)\b|\bask(?:ing)?(?: first)?\s*$"
    r"|\bask(?:ing|ed)? (?:the )?(?:user|customer|client)\s*$|\bconfirm(?:ing|ation|ed)?\s*$|\bconfirmation\b"
)
_OTHERS = any_case(
    r"\b(?:manager|supervisor|admin|administrator|team lead|lawyer|legal|director|compliance|partner|colleague|doctor"
    r"|physician|nurse|parent|guardian|boss|officer|committee|board|teams?|department|reviewer|approver|finance"
    r"|human agent|operator)\b|\b(?:written|signed|in writing|notari[sz]ed|on file)\b|\b(?:approval|consent"
    r"|confirmation|permission|agreement|go-ahead) (?:of|from|by) (?:(?:an?|the|your|our|another|two|one) )*(?!(?:an?"
    r"|the|your|our|another|two|one)\b|user|customer|client|caller|requester|them|guest|owner|account|patient|member"
    r"|passenger|human|person|explicit|both|him|her|you)\w+"
)


def asks_user(phrase: str) -> bool:
    """Whether a phrase speaks of the agreement of the user and of nobody else: `confirm with the customer`."""
    return _ASKS_USER.search(phrase.strip(" ,.")) is not None and not _OTHERS.search(phrase)


def user_agrees() -> str:
    """The latest message of the user agrees."""
    return rf"(!user(/\S/) S (user(/{AGREES}/i) & !user(/{REFUSES}/i)))"


def require_agreement_before(tools: Sequence[str], tests: Sequence[ArgTest] = ()) -> Draft:
    """At each of these calls, the latest message of the user agrees."""
    message = "the user's last message before it does not confirm it"
    return formula(f"G ({atom(tools, tests)} -> {user_agrees()})", "dialogue", message)


# -- requests of the user ---------------------------------------------------------------------------------------------

_ON_REQUEST = any_case(
    r"(?:\W|\b(?:the|a|an|user|users|customer|you|they|i|are|is|being|be|been|have|has|was|were|explicitly|specifically"
    r"|expressly|directly|clearly|first|asks?|asked|asking|requests?|requested|requesting|instruct(?:s|ed)?"
    r"|instructions?|told|tells?|for|it|this|them|so|to|do|otherwise|that|by|or|and|wants?)\b)+"
)
_REQUESTS = any_case(r"\b(?:ask|request|instruct|told|tell)")
_UNCLEAR_REQUEST = "whether the user asked for it is known only by a word"
_ON_REQUEST_CONFIDENCE = 0.7


def limit_to_requests(view: View, reading: Reading) -> Reading:
    """`never commit unless the user asks`: a breach if no message of the user has the word."""
    parts = view.clause.parts
    if not parts:
        return reading
    part = parts[0]
    is_request = (
        part.word in ("unless", "without", "iff", "if")
        and _ON_REQUEST.fullmatch(part.text)
        and _REQUESTS.search(part.text)
    )
    if part.word == "if" and view.marker.force != "only":
        is_request = None
    if len(parts) > 1 or not is_request or not reading.asked_by or not reading.drafts:
        return Reading(name=reading.name, undecided=f"no event shows whether `{view.quote(part)}` holds")
    return replace(
        reading,
        drafts=tuple(_only_on_request(draft, reading.asked_by) for draft in reading.drafts),
        trigger=view.when(part),
        undecided=_UNCLEAR_REQUEST,
        ceiling=min(reading.ceiling, _ON_REQUEST_CONFIDENCE),
    )


def _only_on_request(draft: Draft, words: str) -> Draft:
    done = draft.params.get("formula", "").removeprefix("G !")
    if draft.kind == "forbidden_text":
        pattern = draft.params["text"].replace("/", r"\/")
        done = f"text(/{pattern}/{'i' if draft.params.get('ignore_case') else ''})"
    return formula(f"G ({done} -> O user(/{words}/i))", draft.aspect, "no earlier message of the user asks for it")


# -- texts of the agent ------------------------------------------------------------------------------------------------

SPEAKS = any_case(
    r"\b(?:say|saying|mention|mentioning|includ\w*|reveal\w*|disclos\w*|writ(?:e|ing)|stat(?:e|ing)|us(?:e"
    r"|ing) the (?:words?|phrases?|terms?)|contain\w*|repl(?:y|ies|ying)|respond\w*|answer\w*|tell\w*|output\w*"
    r"|begin\w*|start\w*|end(?:s|ing)?|finish\w*|open\w*|clos(?:e|es|ing)|greet\w*|sign off|append\w*|prefix\w*"
    r"|utter\w*|print\w*|add\w*|the (?:words?|phrases?|terms?)|address\w*|call(?:ing)? (?:the )?(?:user|customer))\b"
)


class Texts(Struct, frozen=True):
    """The texts in a clause that the agent is to say or not to say."""

    literals: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.literals)

    @property
    def quoted(self) -> str:
        return " or ".join(f'"{text}"' for text in self.literals)

    def said(self, *, before: str = "", after: str = "") -> str:
        """The agent says one of them."""
        return either([f"text({text_pattern(text, before=before, after=after)})" for text in self.literals])

    def user_says(self) -> str:
        return either([f"user({text_pattern(text)})" for text in self.literals])


def find_texts(text: str, literals: list[Literal]) -> Texts | None:
    wanted = tuple(literal.text for literal in literals if literal.text.strip())
    return Texts(wanted) if wanted and SPEAKS.search(text) else None


# -- quoted texts ------------------------------------------------------------------------------------------------------

# Quoted text that the agent must or must not say: `never say "guaranteed"`, `end every answer with "Thank you"`.
#
# The main part of the clause has to fit one of a few forms as a whole, so that every word of it is understood. Quoted
# text in any other place is a value, an example, a file or a command, and demands nothing of what the agent says.


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
        return Reading(name=name, undecided=NO_TIME)
    groups = [texts] if _ANY_OF.search(shape) else [Texts((text,)) for text in texts.literals]
    drafts = tuple(_require(shape, one) for one in groups)
    return Reading(name=name, drafts=drafts, required=f"say: {texts}", ceiling=EVERY_ANSWER)


def _require(shape: str, texts: Texts) -> Draft:
    """Where the text has to be said: in the last answer, in the first one, in every answer, or once."""
    if _FINAL.search(shape):
        said, message = _anchor_pattern(shape, texts), f"the last answer does not {_verb(shape)} {texts.quoted}"
        return formula(f"G ((text(/\\S/) & !X F text(/\\S/)) -> {said})", "text", message)
    if _CONVERSATION.search(shape):
        if _OPENS.search(shape):
            said = texts.said(before=r"^\s*") if _OPENS_MESSAGE.search(shape) else texts.said()
            how = "begin with" if _OPENS_MESSAGE.search(shape) else "contain"
            return formula(f"!text(/\\S/) W {said}", "text", f"the first answer does not {how} {texts.quoted}")
        if not _ENDS.search(shape):
            return formula(f"F {texts.said()}", "text", f"no answer contains {texts.quoted}")
        message = f"the last answer does not contain {texts.quoted}"
        return formula(f"G ((text(/\\S/) & !X F text(/\\S/)) -> {texts.said()})", "text", message)
    message = f"the answer does not {_verb(shape)} {texts.quoted}"
    return formula(f"G ((text(/\\S/) & !tool(*)) -> {_anchor_pattern(shape, texts)})", "text", message, over="turns")


def _verb(shape: str) -> str:
    return "begin with" if _OPENS.search(shape) else "end with" if _ENDS.search(shape) else "contain"


def _anchor_pattern(shape: str, texts: Texts) -> str:
    """`begin with`, `end with`, or anywhere in the answer."""
    if _OPENS.search(shape):
        return texts.said(before=r"^\s*")
    return texts.said(after=r"\W*$") if _ENDS.search(shape) else texts.said()


_AT_END = r"\W*$"


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
    before, after = (r"^\s*" if opens else ""), (_AT_END if at and not opens else "")
    return Reading(
        name=name,
        drafts=tuple(_forbid(text, before, after or (_TOOL_WORD if _OF_TOOL.search(shape) else "")) for text in words),
        forbidden=f"say: {texts}",
        undecided=_LIKE_THESE if examples else None,
        ceiling=_EXAMPLES_CONFIDENCE if examples else 1.0,
    )


def _forbid(text: str, before: str, after: str) -> Draft:
    """`Sure` alone is the interjection, which `make sure` is not: one capitalised word is searched for as it is."""
    # The engine's patterns know the bounds of words only beside ASCII letters and digits.
    left = r"\b" if re.match(r"\w", text, re.ASCII) else ""
    right = r"\b" if re.search(r"\w$", text, re.ASCII) else ""
    pattern = f"{before}{left}{literal_pattern(text)}{right}{after}"
    is_interjection = re.fullmatch(r"[A-Z][a-z]+", text) is not None
    where = "begins with" if before else "ends with" if after == _AT_END else "contains"
    params = {"text": pattern, "regex": True, "ignore_case": not is_interjection}
    return Draft("forbidden_text", {**params, "message": f'the answer {where} "{text}"'}, "text")
