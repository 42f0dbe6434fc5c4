"""The wording that all messages share: quoted text, lists of choices, near matches."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

MAX_QUOTED = 60
"""more of the user's text than this in a message hides the message"""

MAX_NEAR = 40
"""no name of ours is as long; comparing longer ones costs time and finds nothing"""

MAX_NAME = 128
"""characters of a tool's name, with providers that limit it"""

MAX_SLIPS = 2
"""letters in which a misspelt name of a tool differs"""

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


def near_name(name: str, known: Collection[str]) -> str | None:
    """The known name of a tool of which `name` is probably a misspelling: other letter case or separators, or a slip.

    Stricter than `near`, because tools are called alike on purpose: `send_mail` and `read_mail` are two tools, and
    `isue_refund` is `issue_refund`. Each word may differ by less than a third of its letters.
    """
    if len(name) > MAX_NAME:
        return None
    from rapidfuzz.distance import OSA  # takes long to import, and most rules name tools that exist

    words = _words(name)
    best: tuple[int, str] | None = None
    for other in sorted(known):
        theirs = _words(other)
        if other == name or abs(len(name) - len(other)) > MAX_SLIPS + len(theirs):
            continue
        if words == theirs or "".join(words) == "".join(theirs):
            return other
        if len(words) != len(theirs):
            continue
        slips = [OSA.distance(mine, their, score_cutoff=MAX_SLIPS) for mine, their in zip(words, theirs, strict=True)]
        is_slip = all(
            slip * 3 < max(len(mine), len(their)) or sorted(mine) == sorted(their)
            for slip, mine, their in zip(slips, words, theirs, strict=True)
        )
        if is_slip and sum(slips) <= MAX_SLIPS and (best is None or sum(slips) < best[0]):
            best = sum(slips), other
    return None if best is None else best[1]


def _words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[^A-Za-z0-9]+", apart.lower()) if word] or [name]
