"""Words that decide: pairs of opposites, of which a text mostly uses one side.

`_PAIRS` counts wherever one of its words stands, in any form. `_PHRASES` is for words that also have meanings which
decide nothing ("you have 3 days left", "right away", "after checking your account"): they count only within a phrase.
A word that is denied ("not approved") counts for neither side, since "denied" may be another word for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bylaw.text.names import WORD

_PAIRS = (
    "buy sell", "increase/raise decrease/reduce", "rise fall", "upgrade downgrade", "credit debit", "deposit withdraw",
    "enable disable", "lock unlock", "grant revoke", "include exclude", "accept/approve/authorize/authorise "
    "deny/reject/decline/refuse/disapprove", "pass fail", "true false", "safe unsafe", "legal illegal", "allow block",
    "win/won lose/lost", "higher lower", "high low", "earlier later", "earliest latest", "minimum maximum",
    "active inactive", "positive negative", "malignant benign", "guilty innocent", "bullish bearish", "open close",
    "confirm cancel", "refund charge", "add remove", "start stop", "public private", "activate cancel", "active cancel",
    "activate deactivate", "agree disagree", "connect disconnect", "subscribe unsubscribe", "mute unmute",
    "freeze unfreeze", "install uninstall", "attach detach", "encrypt decrypt", "import export", "hire fire",
    "admit discharge", "suspend reinstate", "renew terminate", "promote demote", "extend shorten", "hide show",
    "borrow lend", "gain loss", "profit loss", "surplus deficit", "income expense", "inbound outbound",
    "incoming outgoing", "ascending descending", "horizontal vertical", "clockwise counterclockwise/anticlockwise",
    "north south", "northern southern", "east west", "eastern western", "male female", "hot cold", "warmer colder",
    "better worse", "best worst", "faster slower", "stronger weaker", "cheaper pricier", "cheapest priciest",
    "older newer", "oldest newest", "optional mandatory", "temporary/temporarily permanent/permanently",
    "manual/manually automatic/automatically", "domestic international", "paid unpaid", "complete/completed incomplete",
    "online offline", "indoor/indoors outdoor/outdoors", "internal external", "inclusive exclusive", "mild severe",
    "acute chronic", "alive dead", "major minor", "majority minority", "sender recipient", "buyer seller",
    "lender borrower", "landlord tenant", "employer employee", "plaintiff defendant", "asset liability",
    "heads tails", "begin end", "double halve", "keep delete",
    "northbound southbound", "eastbound westbound", "upstairs downstairs",
    "links rechts", "vorher nachher", "genehmigt abgelehnt", "erhöht gesenkt", "gauche droite", "avant après",
    "approuvé/approuvée refusé/refusée", "izquierda derecha", "antes después", "aprobado/aprobada rechazado/rechazada",
    "sinistra destra", "prima dopo", "approvato/approvata respinto/respinta", "esquerda direita", "antes depois",
    "front rear", "ahead behind",
)  # fmt: skip
_DATED = r"(?!\s+(?:\w+ing|i|we|you|it|they|he|she|that|this|then|all|anything|sales|hours)\b)"
_MEASURED = (
    r"(?=\s+(?:[$€£¥₹]\s?)?\d|\s+(?:the|your|our|its) (?:limit|threshold|minimum|maximum|average|budget|target)\b)"
)
_NO_GREETING = "".join(f"(?<!{word} )" for word in ("good", "nice", "great", "lovely", "wonderful", "pleasant"))
_PARTS = (
    "hand|side|turn|lane|arm|leg|eye|ear|knee|foot|shoulder|hip|lung|kidney|breast|ankle|wrist|elbow|wing|door|click|"
    "column|margin|bank|edge|corner|button"
)
_SIDE = (
    r"\b(?:(?:on|to|from|at) (?:the|your|its|his|her|my) {0}(?=\s*(?:[.,;:!?)]|$|of\b|and\b))"
    r"|(?:turn|bear|keep|swipe|veer)(?:s|ed|ing)? {0}\b(?! (?:now|away|back)\b)|{0}[- ](?:" + _PARTS + r")\b)"
)
_PHRASES = (
    (
        "before or after",
        "before prior until till later after",
        rf"\b(?:before|prior to|until|till|no later than)\b{_DATED}",
        rf"\bafter\b{_DATED}",
    ),
    (
        "at most or at least",
        "most least than up under below over above exceed",
        rf"\b(?:at (?:the )?most|(?:(?<!no )(?<!not )(?:less|fewer)|(?:no|not) more) than|up to(?= (?:[$€£]\s?)?\d)"
        rf"|(?:under|below){_MEASURED})\b",
        rf"\b(?:at (?:the )?least|(?<!no )(?<!not )more than(?! happy| welcome| glad)|(?:no|not) (?:less|fewer) than"
        rf"|(?:over|above|exceed(?:s|ed|ing)?){_MEASURED})\b",
    ),
    ("left or right", "left right", _SIDE.format("left"), _SIDE.format("right")),
    (
        "up or down",
        "up down",
        r"\b(?:go|goes|going|gone|went|is|are|was|were|moved?|moves|scroll|back) up\b(?! (?:to|for)\b)",
        r"\b(?:go|goes|going|gone|went|is|are|was|were|moved?|moves|scroll) down\b",
    ),
    (
        "on or off",
        "turn switch power on off",
        r"\b(?:turn|switch|power)(?:s|ed|ing)? (?:\w+ ){0,3}?on\b|\b(?:is|are|stays?|now|be) on(?=[.,;!?]|$)",
        r"\b(?:turn|switch|power)(?:s|ed|ing)? (?:\w+ ){0,3}?off\b|\b(?:is|are|stays?|now|be) off(?=[.,;!?]|$)",
    ),
    (
        "in or out",
        "check log sign opt clock",
        r"\b(?:check|log|sign|opt|clock)(?:s|ed|ged|ging|ing|ting|ted)?[- ]in\b",
        r"\b(?:check|log|sign|opt|clock)(?:s|ed|ged|ging|ing|ting|ted)?[- ]out\b",
    ),
    (
        "morning or evening",
        "morning evening afternoon",
        rf"{_NO_GREETING}\bmorning\b",
        rf"{_NO_GREETING}\b(?:evening|afternoon)\b",
    ),
    ("AM or PM", "am a.m pm p.m :", r"\d\s?a\.?m\b", r"\d\s?p\.?m\b|\b(?:1[3-9]|2[0-3]):[0-5]\d\b"),
)
"""a pair, words of which one occurs in each phrase (which is quick to see), and the phrases of both sides"""
_COMPILED = [
    (pair, pair.split(" or "), hints.split(), (re.compile(one), re.compile(other)))
    for pair, hints, one, other in _PHRASES
]
_DENIALS = "not never cannot no nor neither without unable nothing none hardly"
_DENYING = frozenset(_DENIALS.split())
_BETWEEN = 3
"""how many words after a denial are denied: "not yet been approved" """


def _forms(word: str) -> Iterator[str]:
    yield from (word, word + "s", word + "es", word + "ed", word + "d", word + "ing", word[:-1] + "ing")
    yield from (word + word[-1] + ending for ending in ("ed", "ing"))
    if word.endswith("y"):
        yield from (word[:-1] + "ies", word[:-1] + "ied")


def _poles() -> dict[str, list[tuple[str, str]]]:
    """Word form → the pairs it belongs to, each with its side."""
    found: dict[str, list[tuple[str, str]]] = {}
    for pair in _PAIRS:
        sides = [side.split("/") for side in pair.split()]
        name = " or ".join(side[0] for side in sides)
        for side in sides:
            for form in {form for word in side for form in _forms(word)}:
                found.setdefault(form, []).append((name, side[0]))
    return found


_POLES = _poles()


def sides_taken(text: str) -> dict[str, set[str]]:
    """For each pair of opposites that occurs in the text, the sides of it that do."""
    lowered = text.lower()
    words = WORD.findall(lowered)
    sides: dict[str, set[str]] = {}
    denied = -_BETWEEN - 1
    for place, word in enumerate(words):
        if word in _DENYING or word.endswith(("n't", "n’t")):
            denied = place
        elif word in _POLES and place - denied > _BETWEEN:
            for pair, pole in _POLES[word]:
                sides.setdefault(pair, set()).add(pole)
    for pair, poles, hints, patterns in _COMPILED:
        if any(hint in lowered for hint in hints):
            found = {pole for pole, pattern in zip(poles, patterns, strict=True) if pattern.search(lowered)}
            sides |= {pair: found} if found else {}
    return sides


def one_sided(sides: dict[str, set[str]]) -> tuple[tuple[str, str], ...]:
    """The pairs of which only one side occurs, each with that side."""
    return tuple(sorted((pair, *found) for pair, found in sides.items() if len(found) == 1))  # type: ignore[misc]
