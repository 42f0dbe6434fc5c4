"""What is said: whether the user agreed to a call, and texts that the agent must or must not say.

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


def agreed() -> str:
    """The latest message of the user agrees."""
    return rf"(!user(/\S/) S (user(/{AGREES}/i) & !user(/{REFUSES}/i)))"


def confirmed(tools: Sequence[str], tests: Sequence[ArgTest] = ()) -> Draft:
    """At each of these calls, the latest message of the user agrees."""
    return formula(f"G ({atom(tools, tests)} -> {agreed()})", "dialogue")


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
    return formula(f"G ({done} -> O user(/{words}/i))", draft.aspect)


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

    def said(self, *, before: str = "", after: str = "") -> str:
        """The agent says one of them."""
        return either([f"text({text_pattern(text, before=before, after=after)})" for text in self.literals])

    def said_by_user(self) -> str:
        return either([f"user({text_pattern(text)})" for text in self.literals])


def find_texts(text: str, literals: list[Literal]) -> Texts | None:
    wanted = tuple(literal.text for literal in literals if literal.text.strip())
    return Texts(wanted) if wanted and SPEAKS.search(text) else None


def literal_words(text: str) -> str:
    """A pattern for whole words. The engine's patterns know their bounds only beside ASCII letters and digits."""
    left = r"\b" if re.match(r"\w", text, re.ASCII) else ""
    return f"{left}{literal_pattern(text)}" + (r"\b" if re.search(r"\w$", text, re.ASCII) else "")
