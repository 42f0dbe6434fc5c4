"""The wording that all messages share: quoted text, lists of choices, near matches."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

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
    return f"`{''.join(c if c.isprintable() else c.encode('unicode_escape').decode('ascii') for c in shown)}`"


def as_json(text: str) -> str:
    """Text the way it has to be written to be read as text, in backticks."""
    return quote(json.dumps(text, ensure_ascii=False))


def listing(words: Iterable[str], *, last: str = "and") -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def nearest_choice(word: str, choices: Iterable[str], synonyms: Mapping[str, str] = _NONE) -> str | None:
    """The choice that was probably meant. `synonyms` maps words that people use to ours."""
    if len(word) > MAX_NEAR:
        return None
    folded = word.strip().lower().replace("-", "_").replace(" ", "_")
    meant = {choice: choice for choice in choices} | dict(synonyms)
    if folded in meant:
        return meant[folded]
    from difflib import get_close_matches  # only for a mistake

    close = get_close_matches(folded, meant, n=1, cutoff=CUTOFF)
    return meant[close[0]] if close else None


def did_you_mean(word: str, choices: Iterable[str], synonyms: Mapping[str, str] = _NONE) -> str:
    """A help line: the near match, or else everything that is possible."""
    choices = tuple(choices)
    match = nearest_choice(word, choices, synonyms)
    if match:
        return f"did you mean `{match}`?"
    return f"write {'one of ' if len(choices) > 1 else ''}{listing(choices, last='or')}"


def synonyms(words: Mapping[str, str]) -> dict[str, str]:
    """`{"block": "deny refuse"}` as `{"deny": "block", "refuse": "block"}`: words that people use → ours."""
    return {word: ours for ours, theirs in words.items() for word in theirs.split()}


def near_name(name: str, known: Collection[str]) -> str | None:
    """The known name of a tool of which `name` is probably a misspelling: other letter case or separators, or a slip.

    Stricter than `near`, because tools are called alike on purpose: `send_mail` and `read_mail`, `get_a` and `get_b`,
    `step_1` and `step_2` are two tools, and `isue_refund` is `issue_refund`. A known name is no misspelling.
    """
    if len(name) > MAX_NAME or name in known:
        return None
    words = _split_words(name)
    best: tuple[int, str] | None = None
    for other in sorted(known):
        theirs = _split_words(other)
        if abs(len(name) - len(other)) > MAX_SLIPS + len(theirs):
            continue
        if "".join(words) == "".join(theirs):
            return other
        slips = _slips(words, theirs)
        if slips is not None and (best is None or slips < best[0]):
            best = slips, other
    return None if best is None else best[1]


def _slips(mine: list[str], theirs: list[str]) -> int | None:
    """How many letters differ, or None if that is no slip but another name."""
    one, other = "".join(mine), "".join(theirs)
    if _fewest_slips(one, other) > MAX_SLIPS:
        return None
    from rapidfuzz.distance import OSA  # takes long to import, and most names have little in common

    if one.translate(_NO_DIGITS) == other.translate(_NO_DIGITS):
        return None
    if len(mine) != len(theirs):  # a separator too few or too many, and a slip
        distance = OSA.distance(one, other, score_cutoff=1)
        return distance if distance == 1 and min(len(one), len(other)) >= _SHORT else None
    if max(len(one), len(other)) <= 2 and sorted(one) != sorted(other):  # `db` and `do`
        return None
    total = 0
    for word, their in zip(mine, theirs, strict=True):
        slips = OSA.distance(word, their, score_cutoff=MAX_SLIPS)
        if slips and not _is_slip(word, their, slips):
            return None
        total += slips
    return total if total <= (1 if max(len(one), len(other)) <= _SHORT else MAX_SLIPS) else None


def _fewest_slips(one: str, other: str) -> int:
    """A lower bound of the number of letters that differ, whatever their positions."""
    mine, theirs = Counter(one), Counter(other)
    return max((mine - theirs).total(), (theirs - mine).total())


def _is_slip(word: str, other: str, slips: int) -> bool:
    """Few of the letters differ; in a short word, not the first one, which people mistype least."""
    if slips > MAX_SLIPS:
        return False
    if slips * 3 < max(len(word), len(other)) or sorted(word) == sorted(other):
        return True
    if word[:1] != other[:1]:
        return False
    if slips == 1:
        return max(len(word), len(other)) > 1
    # two slips in a short word: `push` is not `pull`, while `iseu` has no letter that is not in `issue`
    mine, theirs = Counter(word), Counter(other)
    return min(len(word), len(other)) >= 2 * slips and (mine <= theirs or theirs <= mine)


_SHORT = 5
"""letters of a name in which more than one slip is another name"""
_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))


def _split_words(name: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[\W_]+", apart.lower()) if word] or [name]
