"""The wording that all messages share: quoted text, lists of choices, near matches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

MAX_QUOTED = 60
"""more of the user's text than this in a message hides the message"""

MAX_NEAR = 40
"""no name of ours is as long; comparing longer ones costs time and finds nothing"""

CUTOFF = 0.7
"""how alike two words must be; below this a suggestion is more often wrong than right"""

_NONE: Mapping[str, str] = {}


def quote(text: str) -> str:
    """The user's own text in backticks, on one line and not too long."""
    shown = text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 1]}…"
    return f"`{''.join(c if c.isprintable() else _escape(c) for c in shown)}`"


def as_json(text: str) -> str:
    """Text the way it has to be written to be read as text, in backticks."""
    return quote(json.dumps(text, ensure_ascii=False))


def listing(words: Iterable[str], *, last: str = "and") -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def near(word: str, choices: Iterable[str], synonyms: Mapping[str, str] = _NONE) -> str | None:
    """The choice that was probably meant. `synonyms` maps words that people use to ours."""
    if len(word) > MAX_NEAR:
        return None
    folded = word.strip().lower().replace("-", "_").replace(" ", "_")
    meant = {choice: choice for choice in choices} | dict(synonyms)
    if folded in meant:
        return meant[folded]
    close = get_close_matches(folded, meant, n=1, cutoff=CUTOFF)
    return meant[close[0]] if close else None


def did_you_mean(word: str, choices: Iterable[str], synonyms: Mapping[str, str] = _NONE) -> str:
    """A help line: the near match, or else everything that is possible."""
    choices = tuple(choices)
    match = near(word, choices, synonyms)
    if match:
        return f"did you mean `{match}`?"
    return f"write {'one of ' if len(choices) > 1 else ''}{listing(choices, last='or')}"


def synonyms(words: Mapping[str, str]) -> dict[str, str]:
    """`{"block": "deny refuse"}` as `{"deny": "block", "refuse": "block"}`: words that people use → ours."""
    return {word: ours for ours, theirs in words.items() for word in theirs.split()}


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
