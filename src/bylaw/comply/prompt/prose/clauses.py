"""A sentence → its clauses, each a main part with the parts that hang on it: if, unless, before, until, after.

`Before X, always do Y and never Z if W.` is two clauses: (do Y; before X) and (never Z; before X; if W). What stands in
front of a sentence hangs on all its clauses, what stands behind only on the one it follows.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.comply.prompt.prose.markers import find_marker, imperative_at

_SUBORDINATE = re.compile(
    r"\b(?:"
    r"(?P<before>(?:immediately |right |just )?before|prior to|ahead of)"
    r"|(?P<until>until(?: after)?|till|not before)"
    r"|(?P<unless>unless|except(?: for| if| when| that| where)?|other than|apart from|with the exception of)"
    r"|(?P<without>without(?: first| having| prior| explicit| the)*)"
    r"|(?P<iff>if and only if|only if|only when|only after|only once(?= [a-z_]+ (?:has|have|is|are|was"
    r"|returns|succeed))|but only (?:if|when|after)|provided(?: that)?|as long as)"
    r"|(?P<after>(?:immediately |right |directly |only )?after|as soon as|following(?! (?:conditions|steps"
    r"|tools|rules|order|values|list|are|is))"
    r"|(?<!only )(?<!just )(?<!than )(?<!at )(?<!exactly )once(?! (?:per|in|each|every|only|for|and"
    r"|or)\b)(?! an? (?:day|week|month|year|turn|session|conversation)\b)(?=\s+\w))"
    r"|(?P<if>(?<!even )if|whenever|when|in case|in the event)"
    r")\b",
    re.IGNORECASE,
)
_SUBJECT = (
    r"(?:then |so )?(?:you|the (?:agent|assistant|model|bot|tool|system|user|customer)|the \w+ (?:tool"
    r"|function)|it|they|we|always|never|do not|don't|must|please"
    r"|make sure|ensure|first|only|refunds?|under no circumstances|no \w+)\b"
)
_MAIN_BEGINS = re.compile(rf",\s*(?={_SUBJECT})", re.IGNORECASE)
_COORDINATE = re.compile(
    r"\s{0,20};\s{0,20}(?:and |but |however,? )?|\s{1,20}[–—-]\s{1,20}(?=(?:never|always|do not|don't|must|only)\b)"
    r"|,?\s{1,20}(?:and|but|or|so|then)\s{1,20}(?:then\s{1,20})?"
    r"(?=(?:you |the (?:agent|assistant|user|model) |it )?"
    r"(?:must|should|shall|may not|cannot|never|always|do not|don't|need to|have to)\b)"
    r"|,\s{0,20}(?:and|but)\s{1,20}(?=(?:if|when|before|after|once)\b)"
    r"|,\s{1,20}(?=(?:never|always|do not|don't|call|use|invoke|ask|contact)\b)",
    re.IGNORECASE,
)

_THEREFORE = re.compile(r"\bso\b|;")
"""what stands before may describe: what stands behind is a clause of its own"""


class Part(Struct, frozen=True):
    """A stretch of the sentence; `word` is the kind of what introduces it, `main` for the main part."""

    word: str
    text: str
    start: int
    end: int


class Clause(Struct, frozen=True):
    main: Part
    parts: tuple[Part, ...] = ()

    @property
    def start(self) -> int:
        return min(part.start for part in (self.main, *self.parts))

    @property
    def end(self) -> int:
        return max(part.end for part in (self.main, *self.parts))

    def hanging(self, *words: str) -> Part | None:
        return next((part for part in self.parts if part.word in words), None)


def read_clauses(masked: str, begin: int) -> list[Clause]:
    """The clauses of a sentence whose masked text this is, from `begin` on."""
    clauses: list[Clause] = []
    carried: tuple[Part, ...] = ()
    for start, end in _stretches(masked, begin):
        leading, clause = _read(masked, start, end)
        if not leading and clauses:
            clause = Clause(clause.main, (*carried, *clause.parts))
        else:
            carried = leading
        clauses.append(clause)
    return clauses


def _stretches(masked: str, begin: int) -> list[tuple[int, int]]:
    cuts: list[tuple[int, int]] = []
    start = begin
    for found in _COORDINATE.finditer(masked, begin):
        left, right = masked[start : found.start()], masked[found.end() :]
        goes_on = ";" in found[0] or _demands(right)
        if goes_on and (_demands(left) or _THEREFORE.search(found[0])):
            cuts.append((start, found.start()))
            start = found.end()
    return [*cuts, (start, len(masked.rstrip()))]


def _demands(text: str) -> bool:
    if _opening(text, 0, len(text)) and "," not in text:
        return False
    _, clause = _read(text, 0, len(text))
    main = clause.main.text
    return bool(main.strip(" ,.")) and (find_marker(main) is not None or imperative_at(main) is not None)


def _read(masked: str, start: int, end: int) -> tuple[tuple[Part, ...], Clause]:
    """The parts in front of the main part, and the clause as a whole."""
    leading: list[Part] = []
    at = start
    while found := _opening(masked, at, end):
        close = _leading_end(masked, found.end(), end)
        if close is None:
            break
        leading.append(_part(found.lastgroup or "if", masked, found.end(), close))
        at = close + 1
    trailing: list[Part] = []
    marks = [found for found in _SUBORDINATE.finditer(masked, at, end) if found.start() > at]
    main = Part("main", masked[at : marks[0].start() if marks else end], at, marks[0].start() if marks else end)
    for found, close in zip(marks, [*(mark.start() for mark in marks[1:]), end], strict=False):
        trailing.append(_part(found.lastgroup or "if", masked, found.end(), close))
    return tuple(leading), Clause(main, (*leading, *trailing))


def _opening(masked: str, at: int, end: int) -> re.Match[str] | None:
    skipped = re.compile(r"[\s,]*(?:(?:and|but|then|so|also)\b[\s,]*)?").match(masked, at, end)
    return _SUBORDINATE.match(masked, skipped.end() if skipped else at, end)


def _leading_end(masked: str, at: int, end: int) -> int | None:
    """The comma that ends a part in front: the first one after which a main part begins, or else the first one."""
    if found := _MAIN_BEGINS.search(masked, at, end):
        return found.start()
    commas = [index for index in range(at, end) if masked[index] == ","]
    imperative = (comma for comma in commas if imperative_at(masked[comma + 1 : end]) is not None)
    close = next(imperative, commas[0] if commas else None)
    return close


def _part(word: str, masked: str, start: int, end: int) -> Part:
    return Part(word, masked[start:end], start, end)
