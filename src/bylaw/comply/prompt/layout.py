"""A prompt → its statements: each sentence with its place, the headings above it, and the list it stands in.

Prompts are Markdown, or text that looks a little like it. A line is a heading (`## Refunds`, `**Refunds**`),
an item (`- x`, `• x`, `3. x`, by its indent under the one before) or part of a paragraph. An item or a heading that is
nothing but the name of a tool opens that tool's section. Fenced code is left out: it shows, it does not demand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from bylaw.comply.prompt.vocabulary import any_case

MAX_PROMPT = 2_000_000
"""characters; beyond that the rest is left unread and said to be"""

_BOLD_LEVEL, _TOOL_LEVEL = 7, 8
"""below the six levels of Markdown"""

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
_ALL = any_case(
    r"\ball\b.{0,60}\b(?:conditions?|following|requirements?|criteria|of these|must|checks?)\b|\b(?:each|every) of\b"
)
_ANY = any_case(r"\b(?:any(?: one)?|at least one|either|one) of\b|\beither\b.*:$")
_CHAIN = any_case(
    r"\bin (?:this |the following |the given |that )?order\b|\bfollow(?:ing)? (?:these )?steps\b|\bin sequence\b"
)


class Line(Struct):
    """A line with its role; `text` has no marks, and `start` is where it begins in the prompt."""

    role: Literal["heading", "item", "text", "blank"]
    text: str
    start: int
    indent: int = 0
    level: int = 0
    numbered: bool = False


class Statement(Struct):
    """One sentence, or a list with what its introduction demands of it."""

    text: str
    start: int
    end: int
    headings: tuple[str, ...] = ()
    tool: str | None = None
    """whose section it stands in"""
    numbered: bool = False
    leads: bool = True
    """the first sentence of its item or paragraph"""
    junction: Junction | None = None
    """set where the sentence introduces a list"""
    parts: tuple[Statement, ...] = ()
    """the items of that list"""


def read_lines(prompt: str) -> Iterator[Line]:
    fenced, start = False, 0
    for raw in prompt[:MAX_PROMPT].splitlines(keepends=True):
        begin, start = start, start + len(raw)
        if _FENCE.match(raw):
            fenced = not fenced
        elif not fenced:
            yield _read_line(raw, begin)


def _read_line(raw: str, begin: int) -> Line:
    text = raw.strip()
    if not text or set(text) <= set("-=_*# "):
        return Line("blank", "", begin)
    offset = begin + raw.index(text[0])
    indent = len(raw.expandtabs(4)) - len(raw.expandtabs(4).lstrip())
    if heading := _HEADING.match(text):
        return Line("heading", heading["text"], offset + heading.start("text"), indent, len(heading["marks"]))
    if bold := _BOLD_LINE.match(text):
        return Line("heading", bold["text"], offset + bold.start("text"), indent, _BOLD_LEVEL)
    if item := _ITEM.match(text):
        numbered = item["mark"].strip("().").isdigit()
        return Line("item", item["text"], offset + item.start("text"), indent, numbered=numbered)
    return Line("text", text, offset, indent)


def sentences(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Each sentence of a stretch of the prompt, with its place."""
    begin = 0
    ends = [match.end() for match in _SENTENCE_END.finditer(text)] + [len(text)]
    for end in ends:
        piece = text[begin:end].strip()
        if end < len(text) and _ABBREVIATION.search(piece):
            continue
        if piece:
            first = start + text.index(piece, begin)
            yield piece, first, first + len(piece)
        begin = end


def junction_of(text: str) -> Junction | None:
    """What an introduction such as `ANY ONE of these conditions must be met:` demands of its list."""
    if not text.rstrip("*_ ").endswith(":"):
        return None
    plain = plain_text(text)
    if _ANY.search(plain):
        return "any"
    if _CHAIN.search(plain):
        return "chain"
    return "all" if _ALL.search(plain) else None


def plain_text(text: str) -> str:
    """Without emphasis and code marks."""
    return _MARKUP.sub("", text)


def tool_named(text: str, tools: Collection[str]) -> str | None:
    """The tool whose section a line opens: the line is nothing but its name, or a name as only programs have."""
    name = plain_text(text).strip().rstrip(":").strip()
    name = name.removesuffix("()").removeprefix("Tool: ").removeprefix("Function: ")
    return name if name in tools or _IDENTIFIER.fullmatch(name) else None


class _Node(Struct):
    line: Line
    children: list[_Node]


def read_layout(prompt: str, tools: Collection[str]) -> list[Statement]:
    """The statements of a prompt, in its order."""
    return list(_Reader(tools).read([_opening(line, tools) for line in read_lines(prompt)]))


def _opening(line: Line, tools: Collection[str]) -> Line:
    """A line that only names a tool is a heading of its own kind, below all others."""
    if line.role in ("item", "text") and tool_named(line.text, tools) is not None:
        return Line("heading", line.text, line.start, line.indent, _TOOL_LEVEL)
    return line


class _Reader:
    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._headings: list[tuple[int, str]] = []
        self._tool: str | None = None

    def read(self, lines: list[Line]) -> Iterator[Statement]:
        at = 0
        while at < len(lines):
            line = lines[at]
            if line.role == "heading":
                self._open_heading(line)
                at += 1
            elif line.role == "blank":
                at += 1
            else:
                block, at = _block(lines, at)
                yield from self._statements(block)

    def _open_heading(self, line: Line) -> None:
        self._headings = [h for h in self._headings if h[0] < line.level] + [(line.level, plain_text(line.text))]
        self._tool = tool_named(line.text, self._tools)

    def _statements(self, nodes: list[_Node]) -> Iterator[Statement]:
        for node in nodes:
            yield from self._node(node)

    def _node(self, node: _Node) -> Iterator[Statement]:
        line = node.line
        pieces = list(sentences(line.text, line.start))
        made = [self._statement(piece, line, leads=number == 0) for number, piece in enumerate(pieces)]
        junction = junction_of(made[-1].text)
        if node.children and junction:
            made[-1].junction = junction
            made[-1].parts = tuple(part for child in node.children for part in self._node(child))
            yield from made
            return
        yield from made
        for child in node.children:
            yield from self._node(child)

    def _statement(self, piece: tuple[str, int, int], line: Line, *, leads: bool) -> Statement:
        headings = tuple(text for _, text in self._headings)
        return Statement(*piece, headings, self._tool, line.numbered, leads)


def _block(lines: list[Line], at: int) -> tuple[list[_Node], int]:
    """The lines up to the next heading as a tree: an item belongs to the nearest line above with less indent.

    Items right below an introduction that ends in a colon belong to it even without an indent.
    """
    roots: list[_Node] = []
    above: list[tuple[float, _Node]] = []
    blank = False
    while at < len(lines) and lines[at].role != "heading":
        line = lines[at]
        at += 1
        if line.role == "blank":
            blank = True
            continue
        depth = line.indent + (0.5 if line.role == "item" else 0.0)
        if line.role == "text" and above and not blank and _continues(above[-1][1].line, line):
            above[-1][1].line = _joined(above[-1][1].line, line)
            continue
        if blank and line.role == "text":
            above = []
        while above and above[-1][0] >= depth:
            above.pop()
        node = _Node(line, [])
        introduces = bool(above) and above[-1][1].line.text.rstrip("*_ ").endswith(":")
        deeper = bool(above) and line.indent > above[-1][1].line.indent
        if above and line.role == "item" and (introduces or deeper):
            above[-1][1].children.append(node)
        else:
            roots.append(node)
        above.append((depth, node))
        blank = False
    return roots, at


def _continues(above: Line, line: Line) -> bool:
    """Whether a plain line goes on with the sentence above it: a wrapped line, not a paragraph or an introduction."""
    ended = above.text.rstrip("*_`\"')").endswith((".", "!", "?", ":", "。"))
    return not ended and not line.text.endswith(":") and (above.role == "text" or line.indent > above.indent)


def _joined(above: Line, line: Line) -> Line:
    """The gap between them is kept, so that places in the text stay places in the prompt."""
    gap = line.start - above.start - len(above.text)
    return Line(
        above.role, above.text + " " * max(gap, 1) + line.text, above.start, above.indent, numbered=above.numbered
    )
