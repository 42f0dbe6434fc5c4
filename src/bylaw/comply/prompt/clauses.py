"""A statement → a sentence without markup → its clauses.

A sentence is as long as the statement's own text, so a position in it is a position in the prompt. Quoted text is not a
demand: in `Sentence.masked` it is replaced by underscores, and it is available as a `Literal`.

A clause is a main part with the parts that depend on it: if, unless, before, until, after. `Before X, always do Y and
never Z if W.` has two clauses: (do Y; before X) and (never Z; before X; if W). A part in front of the sentence belongs
to all its clauses, a part behind a clause only to that clause.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.comply.prompt.markers import Force, find_marker, imperative_at
from bylaw.comply.prompt.vocabulary import Tools, any_case, lower_in_place

MAX_SENTENCE = 1_000
"""characters; some patterns take time quadratic in the length of a sentence"""

_MARKS = re.compile(r"\*+|`+")
_CODE = re.compile(r"`([^`\n]{1,200})`")
_QUOTED = re.compile(
    r"\"([^\"]{1,400})\"|“([^”]{1,400})”|(?<!\w)'([^']{1,400})'(?!\w)|\u2018([^\u2019]{1,400})\u2019(?!\w)"
)
_LABEL = any_case(
    r"\s*(?!(?:never|always|do not|don't|only|must|before|after|if|when|unless|for)\b)"
    r"([A-Za-z][\w /&'-]{0,60}?):\s+(?=\S)"
)
_EXAMPLE = re.compile(
    r"\W*(?:for example|for instance|e\.g\.?|example|examples|as an example|sample)\b(?!\s+(?:of|tool|must))"
)
_QUESTION = re.compile(r"\?[\"'”’)\]*_\s]*$")
_NO_LIMITS = re.compile(
    r"\b(?:(?:for|under|in|at|on) (?:any|whatever|all) (?:reasons?|circumstances?|cases?|situations?|events?"
    r"|conditions?|way|times?|points?|account)(?: at all)?(?: whatsoever)?|no matter (?:what|how|who|why"
    r"|when)\b(?:[^,;.]*[^\s,;.])?|regardless(?: of\b(?:[^,;.]*[^\s,;.])?)?|whatsoever|without (?:any )?exceptions?"
    r"|no exceptions|even (?:if|when|though|after)\b(?:[^,;.]*[^\s,;.])?)(?!\w)"
)
"""words that say that a rule holds in all cases"""
_REASON = re.compile(
    r"[\s,(]*(?:[\u2013\u2014-]\s*)?\b(?:because\b|due to\b|(?:as|since) (?:it|this|that|these|those|they|doing (?:so"
    r"|this)|(?:the |our |your )?\w+(?= (?:is|are|can|cannot|may|will|would|could|has|have)\b))\b)|(?:,"
    r"|\s[\u2013\u2014-]|\s\()\s*(?:it|this|that|these|those|they|doing (?:so|this)|which)(?:'s\b|'re\b|\s+(?:is|are"
    r"|was|were|can|cannot|can't|could|may|might|will|would|has|have|does|do|often|usually|\w+s)\b)"
)
"""where the reason for a rule begins: `because it is slow`, `, it is dangerous`"""
_MERELY = re.compile(r"\b(?:only|just|simply|merely|solely|purely)\s*$")
"""`never call A only because of B` allows A for other reasons"""
_NEGATION = re.compile(r"\b(?:never|not|no|avoid|cannot)\b|n't\b")
_SOMEBODY = re.compile(
    r"(?: of)?\s+(?:(?:the|a|an|your) (?:user|customer|caller|client|guest|patient|member|visitor)"
    r"|someone|somebody|they)\b"
)
"""`never call A because the user asks` may allow A for other reasons"""
_MAY_REASON = re.compile(
    r"\b(?:because|due to|as|since)\b|(?:,|\s[\u2013\u2014-]|\s\()\s*(?:it|this|that|these|those|they|doing|which)\b"
)
_ALTERNATIVE = re.compile(
    r"\s*(?:[(:\u2013\u2014\u2192]|-+>?|=>)\s*(?:(?:please|rather|instead|just|always) )?"
    r"(?:(?:use|call|prefer|try|run) (?:the )?(?P<name>\w+)(?: (?:tool|function))?(?: (?:instead|rather))?"
    r"|(?P<other>\w+) instead)\s*\)?(?=\s*(?:[.!]\s*)?$)"
)
"""the alternative to a forbidden action: `(use A)`, `— use A instead`"""
_DEMANDS_MORE = re.compile(
    r"\b(?:unless|except|if|until|only|but|however|instead|always|never|must|don't|do not|should|shall|required|please"
    r"|first|before|after|then|call|use|ask|when(?:ever)?|need(?:s|ed)?|not (?:allowed|permitted))\b|[.;:]\s"
)
_SUBORDINATE = re.compile(
    r"\b(?:(?P<before>(?:immediately |right |just )?before|prior to|ahead of)|(?P<until>until(?: after)?|till"
    r"|not before)|(?P<unless>unless|except(?: for| if| when| that| where)?|other than|apart from"
    r"|with the exception of)|(?P<without>without(?: first| having| prior| explicit| the)*)|(?P<iff>if and only if"
    r"|only if|only when|only after|only once(?= [a-z_]+ (?:has|have|is|are|was|returns|succeed))|but only (?:if|when"
    r"|after)|(?<!have )(?<!has )(?<!been )provided(?: that|(?= (?:the|you|it|they|we|there|\w+_\w+)\b))|as long as)"
    r"|(?P<after>(?:immediately |right |directly |only )?after|as soon as|(?<!the )following(?! (?:conditions|steps"
    r"|tools|rules|order|values|list|are|is))|(?<!only )(?<!just )(?<!than )(?<!at )(?<!exactly )once(?! (?:per|in|each"
    r"|every|only|for|and|or)\b)(?! an? (?:day|week|month|year|turn|session|conversation)\b)(?=\s+\w))"
    r"|(?P<if>(?<!even )(?:if|when)|whenever|in case|in the event))\b"
)
_MAIN_BEGINS = re.compile(
    r",\s*(?=(?:then |so )?(?:you|the (?:agent|assistant|model|bot|tool|system|user|customer)|the \w+ (?:tool"
    r"|function)|it|they|we|always|never|do not|don't|must|please"
    r"|make sure|ensure|first|only|refunds?|under no circumstances|no \w+)\b)"
)
_AGENT_BEGINS = re.compile(r"(?<=\w)\s(?=(?:you|the (?:agent|assistant)) (?:must|should|shall|need to|have to)\b)")
"""`Before B you must call A`: a main part without a comma in front"""
_COORDINATE = re.compile(
    r"\s{0,20};\s{0,20}(?:and |but |however,? )?|\s{1,20}[–—-]\s{1,20}(?=(?:never|always|do not|don't|must|only)\b)"
    r"|,?\s{1,20}(?:and|but|or|so|then)\s{1,20}(?:then\s{1,20})?(?=(?:you |the (?:agent|assistant|user|model) "
    r"|it )?(?:must|should|shall|may not|cannot|never|always|do not|don't|need to|have to)\b)|,\s{0,20}(?:and"
    r"|but)\s{1,20}(?=(?:if|when|before|after|once)\b)|,\s{1,20}(?=(?:never|always|do not|don't|call|use|invoke|ask"
    r"|contact)\b)"
)
_THEREFORE = re.compile(r"\bso\b|;")
"""the text before it may only describe; the text behind it is a clause of its own"""
_COMMA = re.compile(r",(?!(?<=\d,)\d)")
_CONNECTIVE = re.compile(r"[\s,]*(?:(?:and|but|then|so|also)\b[\s,]*)?")


class Literal(Struct, frozen=True):
    """Text in quotes or between backticks; `start` and `end` include the marks."""

    text: str
    start: int
    end: int
    is_code: bool = False


class Sentence(Struct, frozen=True):
    """One sentence without markup, and the tools it may speak of."""

    text: str
    masked: str
    tools: Tools
    section: str | None = None
    """the tool whose section the sentence is in"""
    literals: tuple[Literal, ...] = ()
    body: int = 0
    """the position after a label such as `Refunds:`"""

    def quotes(self, name: str) -> bool:
        """Whether the name is between backticks or in quotes."""
        return any(literal.text == name for literal in self.literals)


def read_sentence(raw: str, tools: Tools, section: str | None = None) -> Sentence | None:
    """The sentence; None where the text is an example or a question, which demand nothing."""
    raw = raw.replace("\u2019", "'").replace("\n", " ").replace("\t", " ")
    codes = [Literal(found[1].strip(), found.start(), found.end(), is_code=True) for found in _CODE.finditer(raw)]
    text = _MARKS.sub(lambda found: " " * len(found[0]), raw)
    quoted = [
        Literal(next(group for group in found.groups() if group is not None).strip(), found.start(), found.end())
        for found in _QUOTED.finditer(text)
    ]
    masked = text
    for literal in quoted:
        if literal.text not in tools.specs:
            blank = "_" * (literal.end - literal.start - 2)
            masked = f"{masked[: literal.start + 1]}{blank}{masked[literal.end - 1 :]}"
    is_aside = re.search(r"\?\W*\)\W*$", masked) and not masked.lstrip(" *_").startswith("(")
    if _EXAMPLE.match(lower_in_place(masked)) or (_QUESTION.search(masked) and not is_aside):
        return None
    masked = _blank_alternative(_blank_reasons(masked), tools)
    label = _LABEL.match(masked)
    if section is None and label and label[1].strip() in tools.specs:
        section = label[1].strip()  # `issue_refund: the amount must be at most 500`
    literals = tuple(sorted([*codes, *quoted], key=lambda literal: literal.start))
    return Sentence(text, masked, tools, section, literals, label.end() if label else 0)


def _blank_reasons(masked: str) -> str:
    """The text with blanks for what limits no rule: `for any reason`, `even if the user asks`, `because it is slow`.

    A reason goes to the end of the sentence. If it has words of a demand or a condition, it stays: then the rule is
    left undecided, since not every word of it is understood.
    """
    masked = _blank(masked, *(found.span() for found in _NO_LIMITS.finditer(lower_in_place(masked))))
    low = lower_in_place(masked)
    for found in _REASON.finditer(low) if _MAY_REASON.search(low) else ():
        if _MERELY.search(low[: found.start()]) or (
            _NEGATION.search(low[: found.start()]) and _SOMEBODY.match(low[found.end() :])
        ):
            continue
        if _demands(masked[: found.start()]) and not _DEMANDS_MORE.search(low[found.end() :]):
            end = len(masked.rstrip(" .!")) if masked.rstrip()[-1:] in ".!" else len(masked)
            return _blank(masked, (found.start(), end))
    return masked


def _blank(text: str, *spans: tuple[int, int]) -> str:
    for start, end in spans:
        text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    return text


def _blank_alternative(masked: str, tools: Tools) -> str:
    """`Never call A (use B).` says nothing against B."""
    found = _ALTERNATIVE.search(lower_in_place(masked))
    group = "name" if found and found["name"] else "other"
    name = masked[found.start(group) : found.end(group)] if found else ""
    if found is None or not (name in tools.specs or "_" in name.strip("_")) or not _demands(masked[: found.start()]):
        return masked
    marker = find_marker(masked[: found.start()])
    is_ban = marker is not None and marker.force is Force.FORBID
    return _blank(masked, found.span()) if is_ban else masked


def label_of(text: str) -> str:
    """`Plan mode` of `Plan mode: never call A`; empty without a label."""
    found = _LABEL.match(_MARKS.sub(" ", text))
    return found[1] if found else ""


class ClausePart(Struct, frozen=True):
    """A stretch of the sentence. `word` is the kind of conjunction in front of it, `main` for the main part."""

    word: str
    text: str
    start: int
    end: int
    conjunction: str = ""
    """the conjunction itself, as it is written"""


class Clause(Struct, frozen=True):
    main: ClausePart
    parts: tuple[ClausePart, ...] = ()

    @property
    def start(self) -> int:
        return min(part.start - len(part.conjunction) for part in (self.main, *self.parts))

    @property
    def end(self) -> int:
        return max(part.end for part in (self.main, *self.parts))

    def part(self, *words: str) -> ClausePart | None:
        """The first part with one of these conjunctions."""
        return next((part for part in self.parts if part.word in words), None)


def read_clauses(sentence: Sentence) -> list[Clause]:
    clauses: list[Clause] = []
    shared: tuple[ClausePart, ...] = ()
    for start, end in _stretches(sentence.masked, sentence.body):
        leading, clause = _read_clause(sentence.masked, start, end)
        if not leading and clauses:
            clause = Clause(clause.main, (*shared, *clause.parts))
        else:
            shared = leading
        clauses.append(clause)
    return clauses


def _stretches(masked: str, begin: int) -> list[tuple[int, int]]:
    """Cut the text where one demand ends and another begins."""
    cuts: list[tuple[int, int]] = []
    start = begin
    for found in _COORDINATE.finditer(lower_in_place(masked), begin):
        left, right = masked[start : found.start()], masked[found.end() :]
        goes_on = ";" in found[0] or _demands(right)
        if goes_on and (_demands(left) or _THEREFORE.search(found[0])):
            cuts.append((start, found.start()))
            start = found.end()
    return [*cuts, (start, len(masked.rstrip()))]


def _demands(text: str) -> bool:
    if "," not in text and _conjunction_at(text, 0, len(text)):
        return False
    main = _read_clause(text, 0, len(text))[1].main.text
    return bool(main.strip(" ,.")) and (find_marker(main) is not None or imperative_at(main) is not None)


def _read_clause(masked: str, start: int, end: int) -> tuple[tuple[ClausePart, ...], Clause]:
    """The parts in front of the main part, and the clause as a whole."""
    leading: list[ClausePart] = []
    at = start
    while found := _conjunction_at(masked, at, end):
        close = _end_of_leading_part(masked, found, end)
        if close is None:
            break
        leading.append(_make_part(found, masked, close))
        at = close + 1
    marks = [found for found in _SUBORDINATE.finditer(lower_in_place(masked), at, end) if found.start() > at]
    if marks and not masked[marks[-1].end() : end].strip(" .,;!"):  # `unless A has been called before`
        marks.pop()
    bounds = [*(mark.start() for mark in marks), end]
    main = ClausePart("main", masked[at : bounds[0]], at, bounds[0])
    trailing = [_make_part(found, masked, close) for found, close in zip(marks, bounds[1:], strict=True)]
    return tuple(leading), Clause(main, (*leading, *trailing))


def _make_part(found: re.Match[str], masked: str, end: int) -> ClausePart:
    return ClausePart(found.lastgroup or "if", masked[found.end() : end], found.end(), end, found[0])


def _conjunction_at(masked: str, at: int, end: int) -> re.Match[str] | None:
    masked = lower_in_place(masked)
    skipped = _CONNECTIVE.match(masked, at, end)
    return _SUBORDINATE.match(masked, skipped.end() if skipped else at, end)


def _end_of_leading_part(masked: str, conjunction: re.Match[str], end: int) -> int | None:
    """The comma that ends a part in front: the first one with a main part behind it, or else the first one."""
    at, masked = conjunction.end(), lower_in_place(masked)
    if found := _MAIN_BEGINS.search(masked, at, end):
        return found.start()
    if conjunction.lastgroup in ("before", "after") and (found := _AGENT_BEGINS.search(masked, at + 1, end)):
        return found.start()
    commas = [found.start() for found in _COMMA.finditer(masked, at, end)]
    before_imperative = (comma for comma in commas if imperative_at(masked[comma + 1 : end]) is not None)
    return next(before_imperative, commas[0] if commas else None)
