"""A prompt → its statements: each sentence with its position, the tool section it is in, and the list it introduces.

Prompts are Markdown or similar text. A line is a heading (`## Refunds`, `**Refunds**`), an item (`- x`, `• x`, `3. x`,
nested by its indent) or part of a paragraph. An item or a heading that is only the name of a tool opens the section of
that tool; any other heading ends it. Fenced code is left out: it shows something and demands nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from bylaw.comply.prompt.markers import Force, find_marker
from bylaw.comply.prompt.vocabulary import any_case

MAX_PROMPT = 2_000_000
"""characters; the rest is reported as unread"""

Junction: TypeAlias = Literal["all", "any", "chain"]
"""whether a list demands all of its items, one of them, or all in this order"""

_HEADING = re.compile(r"(?P<marks>#{1,6})\s+(?P<text>.*?)\s*#*\s*$")
_ITEM = re.compile(r"(?P<mark>[-*+•‣▪◦·–]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s+(?P<text>\S.*)$")
_BOLD_LINE = re.compile(r"(?:\*\*|__)(?P<text>[^*_]{1,80}?):?(?:\*\*|__):?\s*$")
_FENCE = re.compile(r"\s*(```|~~~)")
_SENTENCE_END = re.compile(
    r"(?<=[.!?\u3002\uff01\uff1f])[\"'\u201d\u2019)\]*_]*\s+(?=[\"'\u201c\u2018(\[*_`]*[A-Z0-9\u00c0-\u00d6\u00d8-\u00de])"
    r"|(?<=[\u3002\uff01\uff1f])"
)
_ABBREVIATION = any_case(r"\b(?:e\.g|i\.e|etc|vs|cf|Mr|Mrs|Ms|Dr|No|St|approx|incl|max|min)\.$")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_MARKUP = re.compile(r"\*\*|__|`")
_FORBIDS = any_case(
    r"\b(?:(?:is|are|be) )?(?:not (?:be )?(?:allowed|permitted|used|called)|forbidden|prohibited|banned|blocked"
    r"|disallowed|off[- ]limits|(?:must|may|should|shall|do|can)(?: not|not| never)|don't|mustn't|can't|never|not"
    r"|no|deny ?list|black ?list)\b"
)
_FORBIDS_AGENT = any_case(
    r"\W*(?:(?:you|the (?:agent|assistant)|agents|please|also)\W+)*(?:(?:must|may|should|shall|can|do|will)(?: not|not"
    r"| never)|don't|mustn't|can't|shouldn't|never|avoid|refrain from)\b"
    r"(?! (?:have|need|know|forget|hesitate|fail|see)\b)"
)
_LONGEST_INTRODUCTION = 500
"""characters of it that are looked at, once for each item"""
_CONDITIONAL = any_case(
    r"\b(?:if|when|whenever|unless|until|before|after|without|except|only|once|more|twice|at most|together|both)\b"
)
_ALL = any_case(
    r"\ball\b.{0,60}\b(?:conditions?|following|requirements?|criteria|of these|must|checks?)\b|\b(?:each|every) of\b"
)
_ANY = any_case(r"\b(?:any(?: one)?|at least one|either|one) of\b|\beither\b.*:$")
_CHAIN = any_case(
    r"\bin (?:this |the following |the given |that )?order\b|\bfollow(?:ing)? (?:these )?steps\b|\bin sequence\b"
)


class Statement(Struct):
    """One sentence, or a list with the sentence that introduces it."""

    text: str
    start: int
    end: int
    tool: str | None = None
    """the tool whose section it is in"""
    numbered: bool = False
    leads: bool = True
    """the first sentence of its item or paragraph"""
    junction: Junction | None = None
    """set if the sentence introduces a list"""
    parts: tuple[Statement, ...] = ()
    """the items of that list"""
    forbidden: bool = False
    """an item of a list such as `Forbidden tools:`"""


class _Line(Struct):
    """A line with its role; `text` has no marks, and `start` is its position in the prompt."""

    role: Literal["heading", "item", "text", "blank"]
    text: str
    start: int
    indent: int = 0
    numbered: bool = False
    children: list[_Line] = []
    """the items below it"""
    forbidden: bool = False
    """an item that names a tool below `Forbidden tools:`"""
    listed: bool = False
    """an item that is the name of a tool and opens no section"""

    @property
    def introduces(self) -> bool:
        return self.text.rstrip("*_ ").endswith(":")


def read_layout(prompt: str, tools: Collection[str]) -> list[Statement]:
    """The statements of a prompt, in its order."""
    statements: list[Statement] = []
    tool: str | None = None
    block: list[_Line] = []
    lines = [*_read_lines(prompt), _Line("heading", "", 0)]
    _mark_lists(lines, tools)
    for line in lines:
        named = _tool_named(line.text, tools) if line.role != "blank" and not line.listed else None
        if line.role != "heading" and named is None:
            block.append(line)
            continue
        for root in _tree(block):
            statements += _statements(root, tool)
        tool, block = named, []
        if line.role == "heading" and named is None and _states_rule(line):
            statements += _statements(line, None)
    return statements


def _read_lines(prompt: str) -> Iterator[_Line]:
    fenced, start = False, 0
    for raw in prompt[:MAX_PROMPT].splitlines(keepends=True):
        begin, start = start, start + len(raw)
        if _FENCE.match(raw):
            fenced = not fenced
        elif not fenced:
            yield _read_line(raw, begin)


def _read_line(raw: str, begin: int) -> _Line:
    text = raw.strip()
    if not text or set(text) <= set("-=_*# "):
        return _Line("blank", "", begin)
    offset = begin + raw.index(text[0])
    indent = len(raw.expandtabs(4)) - len(raw.expandtabs(4).lstrip())
    if heading := _HEADING.match(text) or _BOLD_LINE.match(text):
        return _Line("heading", heading["text"], offset + heading.start("text"), indent)
    if item := _ITEM.match(text):
        is_number = item["mark"].strip("().").isdigit()
        return _Line("item", item["text"], offset + item.start("text"), indent, is_number)
    return _Line("text", text, offset, indent)


def _mark_lists(lines: list[_Line], tools: Collection[str]) -> None:
    """Find the items that name tools in a list whose introduction or heading demands something of them."""
    introduction = ""
    for line, below in pairwise(lines):
        if line.role == "heading" or line.introduces:
            introduction = line.text[-_LONGEST_INTRODUCTION:]
        elif line.role == "text":
            introduction = ""
        elif line.role == "item" and introduction and _begins_with_tool(line.text, tools):
            denials = _FORBIDS.findall(introduction)
            is_section = below.role in ("item", "text") and below.indent > line.indent
            line.forbidden = len(denials) == 1 and not _CONDITIONAL.search(introduction)
            demands = denials or _junction_of(introduction) or find_marker(introduction)
            line.listed = bool(line.forbidden or (demands and not is_section and _tool_named(line.text, tools)))


def _begins_with_tool(text: str, tools: Collection[str]) -> bool:
    first = re.split(r"[\s:(,]", plain_text(text).strip(), maxsplit=1)[0].rstrip(".;")
    return first in tools or _IDENTIFIER.fullmatch(first) is not None


def _states_rule(heading: _Line) -> bool:
    """`# Never call drop_table`."""
    text = heading.text[:_LONGEST_INTRODUCTION]
    marker = find_marker(text) if _IDENTIFIER.search(text) and not heading.introduces else None
    return marker is not None and marker.force in (Force.FORBID, Force.REQUIRE, Force.ONLY)


def _tool_named(text: str, tools: Collection[str]) -> str | None:
    """The tool whose section a line opens: the line is only its name, or an identifier such as `issue_refund`."""
    name = plain_text(text).strip().rstrip(":").strip()
    name = name.removesuffix("()").removeprefix("Tool: ").removeprefix("Function: ")
    return name if name in tools or _IDENTIFIER.fullmatch(name) else None


def _tree(lines: list[_Line]) -> list[_Line]:
    """The lines of a block as trees: an item belongs to the nearest line above with less indent.

    Items directly below an introduction that ends in a colon belong to it even without an indent.
    """
    roots: list[_Line] = []
    above: list[tuple[float, _Line]] = []
    blank = False
    for line in lines:
        if line.role == "blank":
            blank = True
            continue
        last = above[-1][1] if above else None
        if line.role == "text" and last is not None and not blank and _continues(last, line):
            # The gap is preserved, so that positions in the text stay positions in the prompt.
            gap = line.start - last.start - len(last.text)
            last.text += " " * max(gap, 1) + line.text
            continue
        if blank and line.role == "text":
            above = []
        depth = line.indent + (0.5 if line.role == "item" else 0.0)
        while above and above[-1][0] >= depth:
            above.pop()
        parent = above[-1][1] if above else None
        if parent is not None and line.role == "item" and (parent.introduces or line.indent > parent.indent):
            parent.children.append(line)
        else:
            roots.append(line)
        above.append((depth, line))
        blank = False
    return roots


def _continues(above: _Line, line: _Line) -> bool:
    """Whether a plain line continues the sentence above it: a wrapped line, not a paragraph or an introduction."""
    ended = above.text.rstrip("*_`\"')").endswith((".", "!", "?", ":", "。"))
    return not ended and not line.text.endswith(":") and (above.role == "text" or line.indent > above.indent)


def _statements(line: _Line, tool: str | None) -> Iterator[Statement]:
    made = [
        Statement(
            *piece, tool, line.numbered and not line.listed, leads=number == 0, forbidden=line.forbidden and number == 0
        )
        for number, piece in enumerate(_sentences(line.text, line.start))
    ]
    items = (part for child in line.children for part in _statements(child, tool))
    junction = _junction_of(made[-1].text)
    if line.children and junction:
        made[-1].junction, made[-1].parts = junction, tuple(items)
        yield from made
    elif any(child.listed for child in line.children):  # `never call these tools:` speaks of its items
        yield from (*made[:-1], *items)
    else:
        yield from made
        yield from items


def _sentences(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Each sentence of a line, with its position in the prompt."""
    begin = 0
    for end in (*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)):
        piece = text[begin:end].strip()
        if end < len(text) and _ABBREVIATION.search(piece):
            continue
        if piece:
            first = start + text.index(piece, begin)
            yield piece, first, first + len(piece)
        begin = end


def _junction_of(text: str) -> Junction | None:
    """What an introduction such as `ANY ONE of these conditions must be met:` demands of its list."""
    if not text.rstrip("*_ ").endswith(":"):
        return None
    plain = plain_text(text)
    if _ANY.search(plain):
        return "any"
    if _CHAIN.search(plain):
        return "chain"
    forbids = _FORBIDS_AGENT.match(plain) and not _CONDITIONAL.search(plain)
    return "all" if forbids or _ALL.search(plain) else None


def plain_text(text: str) -> str:
    """The text without emphasis and code marks."""
    return _MARKUP.sub("", text)
