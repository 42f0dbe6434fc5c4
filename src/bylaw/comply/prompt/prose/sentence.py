"""A statement made ready to be read: no markup, quoted text blanked, and every place still where it was.

`text` and `masked` are as long as the statement's own text, so a place in them is a place in the prompt. What stands in
quotes is someone's words, not a demand: in `masked` it is underscores, and it is kept as a `Literal`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

MAX_SENTENCE = 1_000
"""characters; what is longer is no sentence, and some patterns take time by the square of it"""

_MARKS = re.compile(r"\*+|`+")
_CODE = re.compile(r"`([^`\n]{1,200})`")
_QUOTED = re.compile(
    r"\"([^\"]{1,400})\"|“([^”]{1,400})”|(?<!\w)'([^']{1,400})'(?!\w)|\u2018([^\u2019]{1,400})\u2019(?!\w)"
)
_LABEL = re.compile(
    r"\s*(?!(?:never|always|do not|don't|only|must|before|after|if|when|unless|for)\b)"
    r"([A-Za-z][\w /&'-]{0,40}?):\s+(?=\S)",
    re.IGNORECASE,
)
_EXAMPLE = re.compile(
    r"\W*(?:for example|for instance|e\.g\.?|example|examples|as an example|sample)\b(?!\s+(?:of|tool|must))",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"\?[\"'”’)\]*_\s]*$")


class Literal(Struct, frozen=True):
    """Text in quotes or between backticks; `start` and `end` take its marks in."""

    text: str
    start: int
    end: int
    is_code: bool = False


class Sentence(Struct, frozen=True):
    text: str
    masked: str
    literals: tuple[Literal, ...] = ()
    body: int = 0
    """where it begins after a label such as `Refunds:`"""
    label: str = ""

    def literals_in(self, start: int, end: int) -> list[Literal]:
        return [literal for literal in self.literals if start <= literal.start and literal.end <= end]

    def coded(self) -> frozenset[str]:
        """What stands between backticks or in quotes, as it is."""
        return frozenset(literal.text for literal in self.literals)


def prepare(raw: str, tools: Collection[str]) -> Sentence | None:
    """The sentence, or None where there is none that could demand anything: a question, an example, a mere name."""
    raw = raw.replace("\u2019", "'").replace("\n", " ").replace("\t", " ")
    codes = [Literal(found[1].strip(), found.start(), found.end(), is_code=True) for found in _CODE.finditer(raw)]
    text = _MARKS.sub(lambda found: " " * len(found[0]), raw)
    quoted = [_literal(found) for found in _QUOTED.finditer(text)]
    masked = text
    for literal in quoted:
        if literal.text not in tools:
            blank = "_" * (literal.end - literal.start - 2)
            masked = f"{masked[: literal.start + 1]}{blank}{masked[literal.end - 1 :]}"
    if _EXAMPLE.match(masked) or _QUESTION.search(masked):
        return None
    label = _LABEL.match(masked)
    literals = tuple(sorted([*codes, *quoted], key=lambda literal: literal.start))
    return Sentence(text, masked, literals, label.end() if label else 0, label[1] if label else "")


def _literal(found: re.Match[str]) -> Literal:
    inside = next(group for group in found.groups() if group is not None)
    return Literal(inside.strip(), found.start(), found.end())
