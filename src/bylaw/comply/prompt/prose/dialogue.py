"""What the user said, by patterns: whether the latest message before a call agrees to it.

This is a likely reading, not a certain one: `sounds good, but use the other card` agrees by pattern. A message agrees
where it begins with, or clearly holds, a word of assent, and does not begin with or hold a clear refusal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bylaw.comply.prompt.prose.lowering import Draft, atom, formula

CONFIDENCE = 0.7

AGREES = (
    r"^\W*(?:yes|yeah|yep|yup|ya|sure|ok|okay|k|fine|correct|right|exactly|absolutely|definitely|certainly"
    r"|of course|please do"
    r"|go ahead|go for it|confirm|confirmed|confirming|proceed|do it|sounds (?:good|great|right|fine)|that works"
    r"|works for me|looks (?:good|right|correct)"
    r"|perfect|great|approved?|agreed?|that'?s (?:right|fine|correct|ok|okay|good)|please (?:proceed|go|do"
    r"|continue|confirm)|let'?s (?:do|go|proceed))\b"
    r"|\b(?:yes|go ahead|do it|i (?:hereby )?(?:do )?(?:confirm|agree|approve|consent|authori[sz]e)"
    r"|please proceed|you (?:may|can) proceed"
    r"|happy to proceed|like to proceed|want to proceed|confirmed|(?:let'?s|just|let'?s just) proceed"
    r"|(?:everything|it|that|this|all) looks (?:good|right|correct|great|fine))\b"
)
REFUSES = (
    r"^\W*(?:no|nope|nah|not|never)\b"
    r"|\b(?:but no|not yet|hold on|hold off|wait a|rather not|never ?mind|changed my mind|no longer)\b"
    r"|\b(?:do not|don'?t) (?:do|proceed|go|book|cancel|delete|drop|remove|send|continue|run|make|refund"
    r"|change|want (?:you )?to)\b"
)

_ASKS_USER = re.compile(
    r"\b(?:confirm|check|clear|verify|agree)(?:s|ed|ing|ation)?\b[^.]{0,30}?\b(?:with|from|by) (?:the "
    r"|your )?(?:user|customer|client|caller|them|requester)"
    r"|\b(?:user|customer|client|caller|requester|they|them)(?:'s|s'|s)?\b[^.]{0,40}?\b(?:confirm|agree"
    r"|consent|approv|permission|yes\b|go-ahead|authori[sz]|acknowledg)"
    r"|\b(?:explicit|user|customer|verbal|prior|their|written)\b[^.]{0,20}?\b(?:confirmation|consent"
    r"|approval|permission|agreement|go-ahead|yes)\b"
    r"|\bask(?:ing|s|ed)?\b[^.]{0,30}?\b(?:user|customer|client|caller|them)\b[^.]{0,20}?\b(?:to confirm"
    r"|for (?:\w+ )?(?:confirmation|permission|approval|consent))"
    r"|\bask(?:ing)?\b (?:for )?(?:confirmation|permission|consent)\b|\b(?:get|obtain|seek|request|wait for"
    r"|receiv)\w* (?:\w+ )?(?:confirmation|permission|consent|a yes|an explicit yes)\b"
    r"|\bask(?:ing)?(?: first)?\s*$"
    r"|\bask(?:ing|ed)? (?:the )?(?:user|customer|client)\s*$|\bconfirm(?:ing|ation|ed)?\s*$|\bconfirmation\b",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"\b(?:manager|supervisor|admin|administrator|team lead|lawyer|legal|director|compliance)\b", re.IGNORECASE
)


def asks_user(phrase: str) -> bool:
    """Whether a phrase speaks of the user's agreement, and of nobody else's."""
    return _ASKS_USER.search(phrase.strip(" ,.")) is not None and not _OTHERS.search(phrase)


def agreed() -> str:
    """The latest message of the user agrees."""
    return rf"(!user(/\S/) S (user(/{AGREES}/i) & !user(/{REFUSES}/i)))"


def confirmed(tools: Sequence[str], tests: Sequence[tuple[str, str, object]] = ()) -> Draft:
    """Each of these calls comes when the latest message of the user agrees."""
    return formula(f"G ({atom(tools, tests)} -> {agreed()})", "dialogue")
