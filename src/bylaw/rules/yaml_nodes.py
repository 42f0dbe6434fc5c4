"""YAML text → located nodes.

libyaml's events are folded into a tree on a stack of our own: PyYAML's composer recurses in C, where nesting that is
deep enough ends the process instead of raising.

An unquoted value means what the core schema of YAML 1.2 says. In YAML 1.1, which many tools still read, `no` and `on`
are booleans and `010` is eight. Here they are text and ten; `legacy` is the value of those tools, for a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import yaml
from msgspec import Struct

from bylaw.model.diagnostic import Related
from bylaw.rules.messages import as_json, quote
from bylaw.rules.nodes import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_SKIPPED,
    Entry,
    LeftAlone,
    ListNode,
    Located,
    MapNode,
    Node,
    OutOfRange,
    Problems,
    Scalar,
    ScalarNode,
    Source,
    Unreadable,
    beyond,
    check_count,
    fraction,
    no_unread_parts,
    parse_whole,
    refuse_depth,
    report_duplicate_key,
    too_deep,
)

_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_LEGACY: dict[str, bool] = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), False),
}
_FIRST = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_OCTAL_1_1 = re.compile(r"[-+]?0[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _FIRST:
        return text
    if _INT.fullmatch(text):
        return parse_whole(text, base=0 if text[:2] in ("0o", "0x") else 10)
    if _FLOAT.fullmatch(text):
        return fraction(text)
    if _NOT_FINITE.fullmatch(text):
        raise OutOfRange
    return text


def read_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar; None also for a number that is refused."""
    try:
        return resolve(text)
    except OutOfRange:
        return None


def legacy(text: str) -> Scalar:
    """What YAML 1.1 reads, where that differs; None where it does not."""
    if text in _LEGACY:
        return _LEGACY[text]
    if _OCTAL_1_1.fullmatch(text) and len(text) <= MAX_DIGITS:
        octal = int(text, 8)
        return octal if octal != int(text) else None
    return None


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FORBIDDEN_ASCII = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FORBIDDEN = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\ufeff"
"""slow to compile, so it is left to `re.search` where the text is not ASCII"""
# Each handle is compared with all the others, so a file full of these would take hours.
_TAG_DIRECTIVE = re.compile(r"^%TAG\b[^\r\n]*", re.MULTILINE)
_ANCHOR = re.compile(r"&[^\s,\[\]{}]+\s*")


def parse_yaml_documents(
    source: Source,
    problems: Problems,
    several: Callable[[Node], bool] = lambda document: False,
    left_alone: LeftAlone = no_unread_parts,
) -> list[Node]:
    """Every document of the text; none where nothing can be made of it. `several`: whether more may follow one.
    `left_alone`: parts that may hold any value."""
    try:
        _refuse_early(source, problems)
        roots = _Builder(source, problems, several).build()
        if problems.has_deferred:
            problems.settle([node for root in roots for node in left_alone(root)])
        return roots
    except Unreadable:
        return []


def _refuse_early(source: Source, problems: Problems) -> None:
    """What libyaml would report without a usable place, or only after too long."""
    text = source.text
    if found := _FORBIDDEN_ASCII.search(text) if text.isascii() else re.search(_FORBIDDEN, text):
        code, message = "yaml-syntax", f"the character U+{ord(found[0]):04X} is not allowed in YAML"
        help = 'inside double quotes it can be written as an escape, such as `"\\u0007"`'
    elif found := _TAG_DIRECTIVE.search(text):
        code, message, help = "yaml-tag", f"tags are not read here: {quote(found[0])}", "remove the line"
    else:
        return
    problems.error(code=code, message=message, at=Located(source, found.start(), found.end()), help=help)
    raise Unreadable


class _Frame(Struct):
    """A list or mapping that is still open."""

    node: ListNode | MapNode
    anchor: str | None
    key: ScalarNode | None = None
    """the key whose value comes next"""
    drop: bool = False
    """the value that comes next has no usable key"""
    size: int = 1
    height: int = 1


_Anchored: TypeAlias = tuple[Node, int, int]
"""a node, how many values it holds, and how deep they are"""


class _Builder:
    """Folds events into a tree; one method per event."""

    def __init__(self, source: Source, problems: Problems, several: Callable[[Node], bool]) -> None:
        self.source = source
        self.problems = problems
        self.several = several
        self.before: list[Node] = []
        self.stack: list[_Frame] = []
        self.anchors: dict[str, _Anchored] = {}
        self.root: Node | None = None
        self.nodes = 0
        self.skipped: tuple[int, Located, str | None] | None = None
        """levels that are open below the deepest, where that began, and its anchor"""

    def build(self) -> list[Node]:
        loader = _Loader(self.source.text)
        handlers: dict[Any, Callable[[Any], bool | None]] = {
            yaml.ScalarEvent: self.scalar,
            yaml.AliasEvent: self.alias,
            yaml.SequenceStartEvent: self.open,
            yaml.MappingStartEvent: self.open,
            yaml.SequenceEndEvent: self.close,
            yaml.MappingEndEvent: self.close,
            yaml.DocumentStartEvent: self.document,
        }
        try:
            while (event := loader.get_event()) is not None:
                handler = handlers.get(type(event))
                if handler is not None and handler(event):
                    break
        except yaml.YAMLError as error:
            if self.skipped is not None:
                refuse_depth(self.skipped[1], self.problems)
            report_syntax_error(error, self.source, self.problems)
            raise Unreadable from None
        finally:
            loader.dispose()
        return self.before if self.root is None else [*self.before, self.root]

    # events

    def document(self, event: Any) -> bool:
        """Whether the rest is not read."""
        if self.root is None:
            return False
        if self.several(self.root):
            self.before.append(self.root)
            self.root, self.anchors = None, {}
            return False
        self.problems.error(
            code="multiple-documents",
            message="a second document starts here; a rule file holds one",
            at=self._at(event),
            help="put each document in a file of its own, or join their rules under one `rules:`",
        )
        return True

    def scalar(self, event: Any) -> None:
        at = self._at(event)
        self._count(1, at)
        self._check_tag(event, at)
        if self.skipped is not None:
            return
        quoted = bool(event.style)
        node = ScalarNode(self.source, at.start, at.end, event.value or (at.raw if event.tag else ""), quoted)
        if not quoted and event.tag is None:
            self._resolve(node, event.value)
        self._add(node, event.anchor, 1, 0)

    def alias(self, event: Any) -> None:
        at = Located(self.source, event.start_mark.index, event.end_mark.index)
        if self.skipped is not None:
            return
        node, size, height = self.anchors.get(event.anchor) or self._unknown_alias(at)
        if len(self.stack) + height > MAX_DEPTH:
            self._add(too_deep(at, self.problems), None, 1, 0)
            return
        if self.stack:
            self.stack[-1].node.end = at.end
        self._count(size, at)
        self._add(node, None, size, height)

    def open(self, event: Any) -> None:
        at = self._at(event)
        self._count(1, at)
        self._check_tag(event, at)
        if self.skipped is not None or len(self.stack) == MAX_DEPTH:
            levels, start, anchor = self.skipped or (0, at, event.anchor)
            if levels == MAX_SKIPPED:
                refuse_depth(start, self.problems)
            self.skipped = levels + 1, start, anchor
            return
        is_list = type(event) is yaml.SequenceStartEvent
        place = self.source, at.start, at.end
        self.stack.append(_Frame(ListNode(*place, []) if is_list else MapNode(*place, {}), event.anchor))

    def close(self, event: Any) -> None:
        if self.skipped is not None:
            levels, at, anchor = self.skipped
            self.skipped = None if levels == 1 else (levels - 1, at, anchor)
            if self.skipped is None:
                at.end = event.end_mark.index
                self._add(too_deep(at, self.problems), anchor, 1, 0)
            return
        frame = self.stack.pop()
        if event.end_mark.index > event.start_mark.index:  # a bracket; a block has no end of its own
            frame.node.end = event.end_mark.index
        self._add(frame.node, frame.anchor, frame.size, frame.height)

    # the tree

    def _add(self, node: Node, anchor: str | None, size: int, height: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = node, size, height
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        frame.size += size
        frame.height = max(frame.height, height + 1)
        frame.node.end = max(frame.node.end, node.end)
        if isinstance(frame.node, ListNode):
            frame.node.items.append(node)
        elif frame.drop:
            frame.drop = False
        elif frame.key is None:
            self._take_key(frame, node)
        else:
            if node.start == node.end:  # nothing was written: a problem with an empty value is shown at its key
                node.start, node.end = frame.key.start, frame.key.end
            frame.node.entries[str(frame.key.value)] = Entry(frame.key, node)
            frame.key = None

    def _take_key(self, frame: _Frame, node: Node) -> None:
        assert isinstance(frame.node, MapNode)
        if not isinstance(node, ScalarNode):
            self.problems.error(code="bad-key", message=f"a key must be text, not a {node.kind()}", at=node)
            frame.drop = True
            return
        key = ScalarNode(self.source, node.start, node.end, node.value if node.quoted else node.raw, node.quoted)
        frame.drop = True
        if key.value == "<<" and not key.quoted:
            help = "write the keys out in each rule, so that each can be read on its own"
            self.problems.error(code="merge-key", message="merge keys are not read here", at=key, help=help)
        elif first := frame.node.entries.get(str(key.value)):
            report_duplicate_key(key, first.key, self.problems)
        else:
            frame.drop, frame.key = False, key

    # scalars and places

    def _at(self, event: Any) -> Located:
        start, end = event.start_mark.index, event.end_mark.index
        anchor = _ANCHOR.match(self.source.text, start, end) if getattr(event, "anchor", None) else None
        return Located(self.source, anchor.end() if anchor else start, end)

    def _resolve(self, node: ScalarNode, text: str) -> None:
        try:
            node.value = resolve(text)
            node.legacy = legacy(text)
        except OutOfRange:
            node.value = beyond(text)
            message = f"the number {quote(text)} is out of range"
            if text.lower() == ".nan":
                message = f"{quote(text)} is not a number (NaN), which nothing compares with"
            help = f"if text is meant, put it in quotes: {as_json(text)}"
            self.problems.defer(code="number-range", message=message, at=node, help=help)

    def _check_tag(self, event: Any, at: Located) -> None:
        if event.tag is None:
            return
        written = re.compile(r"\S*").match(self.source.text, at.start)
        tag = written[0].rstrip(",]}") if written else ""
        self.problems.error(
            code="yaml-tag",
            message=f"tags are not read here: {quote(tag)}",
            at=Located(self.source, at.start, at.start + len(tag)),
            help=f"if text is meant, put it in quotes: {as_json(tag)}; otherwise remove the tag",
        )

    def _unknown_alias(self, at: Located) -> _Anchored:
        self.problems.error(
            code="unknown-alias",
            message=f"the alias {quote(at.raw)} names nothing above it",
            at=at,
            help=f"if text is meant, put it in quotes: {as_json(at.raw)}",
        )
        return ScalarNode(self.source, at.start, at.end, at.raw, quoted=True), 1, 0

    def _count(self, values: int, at: Located) -> None:
        self.nodes += values
        check_count(self.nodes, at, self.problems)


# -- libyaml's complaints in our words ---------------------------------------------------------------------------------

_Wording: TypeAlias = tuple[str, str | None]
"""a message and a help line"""

_INDENT = "check the indentation: what belongs together starts in the same column"


def report_syntax_error(error: yaml.YAMLError, source: Source, problems: Problems) -> None:
    """One diagnostic; for an unclosed bracket or quote, it points at that instead of the end of the file."""
    if not isinstance(error, yaml.MarkedYAMLError):
        problems.error(code="yaml-syntax", message="this cannot be read as YAML", at=_char(source, 0))
        return
    at = error.problem_mark.index if error.problem_mark else 0
    opened = error.context_mark.index if error.context_mark else at
    if (tab := _tab_in_indent(source.text, at)) is not None:
        advice = "indent with spaces; YAML does not allow tabs there"
        problems.error(code="tab-indent", message="a tab is used as indentation", at=_char(source, tab), help=advice)
        return
    problem = error.problem or "cannot be read as YAML"
    wording = next((words for known, words in _KNOWN.items() if known in problem), None)
    message, help = wording(source.text, at, opened) if wording else (problem.replace("'", "`"), None)
    code = "yaml-tag" if "tag" in (error.problem or "") else "yaml-syntax"
    related: tuple[Related, ...] = ()
    if not source.text[at:].strip() and opened < at:
        at = opened
    elif "\n" in source.text[opened:at]:
        began = (words for known, words in _CONTEXTS.items() if known in (error.context or ""))
        related = (problems.related(_char(source, opened), next(began, "reading began here")),)
    problems.error(code=code, message=message, at=_char(source, at), help=help, related=related)


def _tab_in_indent(text: str, at: int) -> int | None:
    """The first tab among the blanks that begin the line of `at`."""
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    blanks = re.compile(r"[ \t-]*").match(text, start)
    tab = text.find("\t", start, blanks.end() if blanks else start)
    return tab if tab >= 0 else None


def _cannot_start(text: str, at: int, opened: int) -> _Wording:
    word = _word_at(text, at)
    return f"a value cannot start with `{word[:1]}`", f"put it in quotes: {as_json(word)}"


def _explain_unclosed(text: str, at: int, opened: int) -> _Wording:
    bracket, closing = ("{", "}") if text[opened : opened + 1] == "{" else ("[", "]")
    if not text[at:].strip():
        return f"this `{bracket}` is never closed", f"close it with `{closing}`"
    return f"expected `,` or `{closing}` here", f"is the `{bracket}` missing its `{closing}`?"


def _explain_unclosed_quote(text: str, at: int, opened: int) -> _Wording:
    return "this quote is never closed", f"close it with {quote(text[opened : opened + 1])}"


def _explain_indicator(text: str, at: int, opened: int) -> _Wording:
    word = _word_at(text, opened)
    meaning = {"*": "an alias", "&": "an anchor"}.get(word[:1], "a block of text")
    return f"unquoted, `{word[:1]}` begins {meaning}", f"put it in quotes: {as_json(word)}"


_KNOWN: dict[str, Callable[[str, int, int], _Wording]] = {
    "cannot start any token": _cannot_start,
    "expected ',' or": _explain_unclosed,
    "unexpected end of stream": _explain_unclosed_quote,
    "unexpected document indicator": _explain_unclosed_quote,
    "unknown escape character": lambda text, at, _: (
        f"{quote(text[at : at + 2])} is no escape in double quotes",
        "use single quotes: in those a backslash is only a backslash",
    ),
    "expected comment or line break": _explain_indicator,
    "alphabetic or numeric character": _explain_indicator,
    "mapping values are not allowed": lambda *_: (
        "`:` is not allowed here",
        "put a value that holds `: ` in quotes; otherwise check the indentation",
    ),
    "expected <document start>": lambda *_: ("a second value starts here; a file holds one", _INDENT),
    "did not find expected key": lambda *_: ("expected a key here", _INDENT),
    "expected '-' indicator": lambda *_: ("expected `- ` or the end of the list here", _INDENT),
    "could not find expected ':'": lambda *_: ("this key has no `:`", "write it as `key: value`"),
}

_CONTEXTS = {
    "flow sequence": "this list begins here",
    "flow mapping": "this mapping begins here",
    "block mapping": "this mapping begins here",
    "block collection": "this list begins here",
    "quoted scalar": "this text begins here",
    "plain scalar": "this value begins here",
    "simple key": "this key begins here",
}


def _word_at(text: str, at: int) -> str:
    """The word at `at`, up to a blank or the end of a flow value."""
    found = re.compile(r"[^\s,\]}]*").match(text, at)
    return found[0][:40] if found else ""


def _char(source: Source, at: int) -> Located:
    return Located(source, at, at + 1)
