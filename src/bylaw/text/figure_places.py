"""Which words and which other figures stand beside each figure of a text, so that an exchange of figures is seen.

"Adults 20, children 10" and "adults 10, children 20" have the same words and the same figures. A place is what a figure
stands beside: the nearest word before or after it, or the nearest figure of its clause. Figures are exchanged if places
of one text have other figures in the other text, and the figures they had are at such places too. A figure that keeps a
place was not exchanged, as "children 10, adults 20" says the same. A place that several figures have ("orders 10 and
20") tells nothing. Names are figures here: "from Alice to Bob".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

_MOST_FIGURES = 500
"""figures of a text whose places are looked at"""
_TOKEN = re.compile(  # bounded, or hostile texts would take quadratic time
    r"(?:[^\W\d_]{1,20}[-_/]){0,3}(?=[^\W_]{0,40}\d)\w+(?:[.,:/'’-]\d\w*)*|[^\W\d_]+(?:['’][^\W\d_]+)?"
)
_DIGIT = re.compile(r"\d")
_PADDED = re.compile(r"(?<=\d)\.0+$")
_CLAUSE_END = re.compile(r"[,;.!?\n]")
_JOINS = frozenset(("and", "or", "but"))
_PASSED_OVER = frozenset(
    (*_JOINS, "a", "an", "the", "of", "is", "are", "was", "were", "be", "will", "has", "have", "had", "as", "about")
)
"""words that stand beside any figure"""

WORD, FIGURE = "word", "figure"
Place = tuple[str, str, str]
"""what kind of thing is nearest, in which direction, and what it is"""
Places = frozenset[tuple[Place, str]]
"""figures with their places"""


def places(text: str, names: Collection[str]) -> Places:
    """Each figure with its places. `names`: in lower case."""
    return frozenset(_places(text.lower(), names))


def _places(text: str, names: Collection[str]) -> Iterator[tuple[Place, str]]:
    word = figure = ""  # the nearest ones before
    waiting: list[str] = []  # figures after the last word
    found = end = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _JOINS or _CLAUSE_END.search(text, end, match.start()):
            figure = ""
        end = match.end()
        if token not in names and not _DIGIT.search(token):
            if token not in _PASSED_OVER:
                yield from (((WORD, "after", token), one) for one in waiting)
                word, waiting = token, []
            continue
        token = _plain(token)
        yield (WORD, "before", word), token
        if figure:
            yield (FIGURE, "before", figure), token
            yield (FIGURE, "after", token), figure
        figure = token
        waiting.append(token)
        found += 1
        if found == _MOST_FIGURES:
            break


def _plain(figure: str) -> str:
    return _PADDED.sub("", figure.replace(",", ""))


def as_written(figures: Iterable[str], text: str) -> list[str]:
    """The figures with the capital letters and the commas that the text has."""
    wanted = dict.fromkeys(figures)
    if not wanted:
        return []
    found = {plain: match[0] for match in _TOKEN.finditer(text) if (plain := _plain(match[0].lower())) in wanted}
    return [found.get(figure, figure) for figure in wanted]


def exchanged(left: Places, right: Places) -> list[str]:
    """The figures that stand in the places of each other."""
    if left == right:
        return []
    before, after = _only_figures(left), _only_figures(right)
    shared = sorted(before.keys() & after.keys())
    found, kept = set[str](), set[str]()
    for kind in (WORD, FIGURE):  # a word says more than another figure, which may have moved itself
        beside = [place for place in shared if place[0] == kind]
        kept |= {before[place] for place in beside if before[place] == after[place]}
        moved = [(place[1], before[place], after[place]) for place in beside if before[place] != after[place]]
        gone = {(way, was) for way, was, _ in moved}
        come = {(way, now) for way, _, now in moved}
        for way, was, now in moved:
            if (way, now) in gone and (way, was) in come and kept.isdisjoint((was, now)):
                found |= {was, now}
    return sorted(found)


def _only_figures(found: Places) -> dict[Place, str]:
    """The places that one figure has alone."""
    known: dict[Place, str | None] = {}
    for place, figure in found:
        known[place] = figure if place not in known else None
    return {place: figure for place, figure in known.items() if figure is not None}
