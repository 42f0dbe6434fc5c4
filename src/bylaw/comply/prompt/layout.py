"""A prompt → its statements: each sentence with its position, the tool section it is in, and the list it introduces.

`lines` divides a prompt into headings, items and paragraphs. An item or a heading that is only the name of a tool opens
the section of that tool; any other heading ends it. A sentence below `In plan mode` or `If the user is new:` holds only
then: `under` says so.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from bylaw.comply.prompt.lines import Line, limits_scope, read_lines, topic_words
from bylaw.comply.prompt.markers import Force, find_marker
from bylaw.comply.prompt.vocabulary import any_case, roots

Junction: TypeAlias = Literal["all", "any", "chain"]
"""whether a list demands all of its items, one of them, or all in this order"""

_SENTENCE_END = re.compile(
    r"(?<=[.!?\u3002\uff01\uff1f])[\"'\u201d\u2019)\]*_]*\s+(?=[\"'\u201c\u2018(\[*_`]*[A-Z0-9\u00c0-\u00d6\u00d8-\u00de]|`)"
    r"|(?<=[.!?])\s+(?=[a-z])"
    r"|(?<=[\u3002\uff01\uff1f])"
)
_ABBREVIATION = any_case(
    r"\b(?:(?:[a-z]\.)+[a-z]|etc|vs|cf|ca|resp|Mr|Mrs|Ms|Dr|No|St|Inc|Ltd|Co|approx|incl|excl|max|min|est|esp|sec"
    r"|fig|dept|ext)\.\s*$"
)
_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_FIELD_NAME = re.compile(
    r"(?!(?:get|cancel|update|create|delete|add|set|check|verify|issue|renew|change|remove|list|find|search|show|apply"
    r"|send)_)\w+_(?:ids?|names?|types?|dates?|times?|keys?|status|codes?|numbers?|urls?|paths?|emails?|address|at|by"
    r"|count|lists?|format|text|items?|fields?|values?|tools|rules|steps|state|notes?|context|history|info|data"
    r"|guidelines|examples?|instructions|policy|output|input|response|message|level|mode|size|goal|plan)"
)
"""identifiers that name a field or a part of the prompt more often than a tool"""
_QUOTES = re.compile(r"[`\"\u201c]|(?<!\w)'")
_QUOTED_TEXT = re.compile(r"`[^`]{1,400}`|\"[^\"]{1,400}\"|\u201c[^\u201d]{1,400}\u201d|(?<!\w)'[^']{1,400}'(?!\w)")
_CONDITION = any_case(
    r"\W*(?:(?:and|but|then|also|so|otherwise)\b\W*)?(?:if|when|whenever|in case|while|during|once|in the event|unless"
    r"|where|in (?:respect|the case|cases) of|with (?:respect|regard) to|regarding|concerning|as (?:for|regards)"
    r"|for (?!all\b|every\b|each\b|any\b|example\b|instance\b)[^.]{1,80}[,:])(?!\w)"
)
_KEY = re.compile(r"[a-z]+(?:[_ ][a-z]+){0,2}: *[\[{\w\"']")
"""`tone: dry`, as in YAML"""
_STRUCK = re.compile(r"~~[^~\n]{1,2000}~~")
_MARKUP = re.compile(r"\*\*|__|`")
_FORBIDS = any_case(
    r"\b(?:(?:is|are|be) )?(?:not (?:be )?(?:allowed|permitted|used|called)|forbidden|prohibited|banned|blocked"
    r"|disallowed|off[- ]limits|(?:must|may|should|shall|do|can)(?: not|not| never)|don'?ts?|mustn't|can't|never|not"
    r"|no|deny ?list|black ?list)\b"
)
_FORBIDS_AGENT = any_case(
    r"\W*(?:(?:you|the (?:agent|assistant)|agents|please|also)\W+)*(?:(?:must|may|should|shall|can|do|will)(?: not|not"
    r"| never)|don't|mustn't|can't|shouldn't|never|avoid|refrain from)\b"
    r"(?! (?:have|need|know|forget|hesitate|fail|see)\b)"
)
_BAN = any_case(
    r"\b(?:forbidden|prohibited|banned|blocked|disallowed|off[- ]limits|avoid|refrain from|deny ?list|black ?list|never"
    r"|(?:under|in|at|on) no (?:circumstances?|case|time|point|account)"
    r"|(?:(?:is|are|be|must|may|should|shall|can|do|does|will) ?)?not(?= (?:allowed|permitted|be|to|call|use|run|invoke"
    r"|do|ever|perform|execute)\b|\W*$)|(?:mustn|can|shouldn|won)'t|don'?ts?|no[- ]go|no(?= (?:calls?|use) (?:of|to)\b)"
    r")\b(?<!or not)"
)
_BAN_WORDS = any_case(
    r"\b(?:the|these|those|this|that|which|following|tools?|functions?|apis?|endpoints?|calls?|call(?:ed|ing)|us(?:e|ed|ing)"
    r"|run(?:ning)?|invok(?:e|ed|ing)|execut(?:e|ed|ing)|do(?:ing|ne)?|perform(?:ed|ing)?|you|your|we|agents?|assistants?"
    r"|ai|bots?|model|are|is|be|must|may|should|shall|can|will|allowed|permitted|strictly|absolutely|explicitly|expressly"
    r"|completely|totally|always|ever|any|all|one|of|in|under|at|on|for|to|from|circumstances?|cases?|reasons?|time"
    r"|please|also|things?|actions?|operations?|commands?|list(?:ed)?|below|here|it|and|or|important|critical|warning|note"
    r"|rules?|hard|destructive|dangerous|irreversible|risky|safety|security|whatsoever|what|anything)\b"
)
"""words beside a ban that do not change it; any other word may limit it or reverse its meaning"""
_RULE_HEADING = any_case(r"\W*(?:never|do not|don't|always|you must|no)\b")
_ABOUT_A_TOOL = any_case(
    r"(?:\W|\d|\b(?:the|tools?|functions?|using|usage|rules?|of|for|how|to|use|an?|and|or|policy|with|about|examples?"
    r"|notes?|when|[a-z]+(?:_[a-z0-9]+)+)\b)*"
)
"""headings that only say which tool the text below is about"""
_LONGEST_INTRODUCTION = 500
"""characters of it that are looked at, once for each item"""
_DEEPEST = 30
"""levels of items below each other; deeper ones stand side by side"""
_CONDITIONAL = any_case(
    r"\b(?:if|when|whenever|unless|until|before|after|without|except|only|once|more|twice|at most|together|both)\b"
)
_ALL = any_case(
    r"\ball\b.{0,60}\b(?:conditions?|following|requirements?|criteria|of these|must|checks?)\b|\b(?:each|every) of\b"
)
_ANY = any_case(r"\b(?:any(?: one)?|at least one|either|one) of\b|\beither\b.*:$")
_CHAIN = any_case(
    r"\bin (?:this |the following |the given |that )?order\b(?! of\b)"
    r"|\bfollow(?:ing)? (?:these )?steps\b|\bin sequence\b"
)


class Statement(Struct):
    """One sentence, or a list with the sentence that introduces it."""

    text: str
    start: int
    end: int
    tool: str | None = None
    """the tool whose section it is in"""
    number: int = 0
    """the number of its step, `3. x`; 0 if it is in no step"""
    leads: bool = True
    """the first sentence of its item or paragraph"""
    junction: Junction | None = None
    """set if the sentence introduces a list"""
    parts: tuple[Statement, ...] = ()
    """the items of that list"""
    forbidden: str = ""
    """the introduction or heading that forbids it, if it names a tool: `Forbidden tools:`"""
    under: str = ""
    """the heading or introduction that says when it holds: `In plan mode`"""
    denied: str = ""
    """the heading that forbids what it lists"""
    is_below: bool = False
    """an item below another one"""
    block: int = 0
    """the number of the heading it stands below"""
    topics: tuple[str, ...] = ()
    """headings and introductions above it that name a topic, which may be all that it is about"""
    follows_condition: bool = False
    """an earlier sentence of its paragraph begins with `if` or `when`, which may hold for it too"""
    is_unordered: bool = False
    """a sentence beside its list says that the list is in no order"""


def read_layout(prompt: str, tools: Collection[str]) -> list[Statement]:
    """The statements of a prompt, in its order."""
    statements: list[Statement] = []
    tool: str | None = None
    block: list[Line] = []
    known = {root for name in tools for root in roots(name)}
    lines = [*read_lines(prompt, known), Line("heading", "", 0)]
    _mark_lists(lines, tools)
    for line, below in pairwise([*lines, lines[-1]]):
        named = _find_section_tool(line.text, tools) if line.role != "blank" and not line.listed else None
        if line.number and not line.introduces and not (below.role == "item" and below.indent > line.indent):
            named = None  # a step
        if line.role != "heading" and named is None:
            block.append(line)
            continue
        begin = len(statements)
        for root in _tree(block):
            statements += _statements(root, tool)
        for one in statements[begin:]:
            one.block = begin
        tool, block = named, []
        if line.role == "heading" and named is None and _states_rule(line):
            statements += _statements(line, None)
    _mark_struck(prompt, statements)
    return statements


def _mark_struck(prompt: str, statements: list[Statement]) -> None:
    """Text that is struck out, or stands in a comment, demands nothing for sure."""
    if "~~" not in prompt and "<!--" not in prompt:
        return
    spans, at = [found.span() for found in _STRUCK.finditer(prompt)], 0
    while (at := prompt.find("<!--", at)) >= 0:
        end = prompt.find("-->", at)
        spans.append((at, end if end >= 0 else len(prompt)))
        at = spans[-1][1]
    spans.sort()
    for one in statements:
        index = bisect_right(spans, (one.end, 0)) - 1
        if index >= 0 and spans[index][1] > one.start:
            one.under = one.under or "text that is struck out or in a comment"


def _mark_lists(lines: list[Line], tools: Collection[str]) -> None:
    """Find the items that name tools in a list whose introduction or heading demands something of them."""
    introduction = ""
    for line, below in pairwise(lines):
        if line.role == "heading" or line.introduces:
            is_mark = line.role == "heading" and not line.text and line.level == 1  # of an item: `<li>`
            introduction = introduction if is_mark else line.text[-_LONGEST_INTRODUCTION:]
        elif line.role == "text":
            introduction = ""
        elif line.role == "item" and introduction and _begins_with_tool(line.text, tools):
            denials = _FORBIDS.findall(introduction)
            is_section = below.role in ("item", "text") and below.indent > line.indent
            line.forbidden = introduction if len(denials) == 1 and forbids_items(introduction) else ""
            demands = denials or _junction_of(introduction) or find_marker(introduction)
            line.listed = bool(line.forbidden or (demands and not is_section and _find_section_tool(line.text, tools)))


def forbids_items(introduction: str) -> bool:
    """Whether an introduction forbids each item of its list, and says nothing else.

    `Never call these tools:` does. `Never guess, use these:`, `tools that never fail:`, `never in production:` do not.
    """
    plain = plain_text(introduction)
    if _CONDITIONAL.search(plain) or not _BAN.search(plain):
        return False
    return not re.search(r"\w", _BAN_WORDS.sub(" ", _BAN.sub(" ", plain)))


def _begins_with_tool(text: str, tools: Collection[str]) -> bool:
    first = re.split(r"[\s:(,]", plain_text(text).strip(), maxsplit=1)[0].rstrip(".;")
    return first in tools or _IDENTIFIER.fullmatch(first) is not None


def _states_rule(heading: Line) -> bool:
    """`# Never call drop_table`; a heading that names a tool among other words is read as a sentence."""
    text = heading.text[:_LONGEST_INTRODUCTION]
    if _IDENTIFIER.search(text) and not _ABOUT_A_TOOL.fullmatch(plain_text(text)):
        return True
    is_rule = _IDENTIFIER.search(text) or (_RULE_HEADING.match(text) and text.count(" ") > 1)
    marker = find_marker(text) if is_rule and not heading.introduces else None
    return marker is not None and marker.force in (Force.FORBID, Force.REQUIRE, Force.ONLY)


def _find_section_tool(text: str, tools: Collection[str]) -> str | None:
    """The tool whose section a line opens: the line is only its name, or an identifier such as `issue_refund`."""
    name = plain_text(text).strip().rstrip(":").strip()
    name = name.removesuffix("()").removeprefix("Tool: ").removeprefix("Function: ")
    looks_like_one = _IDENTIFIER.fullmatch(name) and not _FIELD_NAME.fullmatch(name)
    return name if name in tools or looks_like_one else None


def _tree(lines: list[Line]) -> list[Line]:
    """The lines of a block as trees: an item belongs to the nearest line above with less indent.

    Items directly below an introduction that ends in a colon belong to it even without an indent.
    """
    trees: list[Line] = []
    above: list[tuple[float, Line]] = []
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
        del above[_DEEPEST:]
        depth = line.indent + (0.5 if line.role == "item" else 0.0)
        while above and above[-1][0] >= depth:
            above.pop()
        parent = above[-1][1] if above else None
        if parent is not None and line.role == "item" and (parent.introduces or line.indent > parent.indent):
            parent.children.append(line)
        else:
            trees.append(line)
        above.append((depth, line))
        blank = False
    return trees


def _continues(above: Line, line: Line) -> bool:
    """Whether a plain line continues the sentence above it: a wrapped line, not a paragraph or an introduction."""
    ended = above.text.rstrip("*_`\"')").endswith((".", "!", "?", ":", "。"))
    if line.text.endswith(":") or _KEY.match(line.text):
        return False
    return not ended and (above.role == "text" or line.indent > above.indent)


def _statements(
    line: Line, tool: str | None, under: str = "", topics: tuple[str, ...] = (), *, is_below: bool = False
) -> Iterator[Statement]:
    under, topics = under or line.under, topics or line.topics
    made = [
        Statement(
            *piece,
            tool,
            0 if line.listed else line.number,
            leads=number == 0,
            forbidden=line.forbidden if number == 0 else "",
            under=under,
            denied=line.denied,
            is_below=is_below,
            topics=topics,
        )
        for number, piece in enumerate(_sentences(line.text, line.start))
    ]
    follows = False
    for statement in made:
        statement.follows_condition = follows
        follows = follows or _CONDITION.match(statement.text) is not None
    if not made:
        return
    last = made[-1]
    limits = _CONDITION.match(last.text) or (line.introduces and (line.limits or limits_scope(last.text)))
    junction = _junction_of(last.text)
    below = under or (last.text if limits and not junction else "")
    if line.children and topic_words(last.text) and not find_marker(last.text):
        topics = (*topics, last.text)
    items = (part for child in line.children for part in _statements(child, tool, below, topics, is_below=True))
    if line.children and junction:
        last.junction, last.parts = junction, tuple(items)
        yield from made
    elif any(child.listed for child in line.children):  # `never call these tools:` speaks of its items
        yield from (*made[:-1], *items)
    else:
        yield from made
        yield from items


def goes_on(step: Statement, below: Statement) -> bool:
    """Whether a step belongs to the same list as the one above. Some write `1.` for each step."""
    return below.number in (step.number, step.number + 1)


def _sentences(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Each sentence of a line, with its position in the prompt. Quoted text and code are not divided."""
    begin = 0
    quoted = iter([found.span() for found in _QUOTED_TEXT.finditer(text)] if _QUOTES.search(text) else [])
    first, last = next(quoted, (0, 0))
    for end in (*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)):
        while last <= end and (span := next(quoted, None)):
            first, last = span
        if end < len(text) and (first < end < last or _ABBREVIATION.search(text, max(begin, end - 20), end)):
            continue
        if piece := text[begin:end].strip():
            at = start + text.index(piece, begin)
            yield piece, at, at + len(piece)
        begin = end


def _junction_of(text: str) -> Junction | None:
    """How many items of its list an introduction such as `ANY ONE of these conditions must be met:` demands."""
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
    """The text without emphasis, code marks and runs of blanks."""
    return " ".join(_MARKUP.sub("", text).split())
