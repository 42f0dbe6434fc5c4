"""JSON text → located nodes, strictly by RFC 8259.

Messages never quote the text: a schema file is read with this too, and a rule must not be a way to print other files.
"""

from __future__ import annotations

import re
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NoReturn

from bylaw.rules.nodes import (
    CONSTANTS,
    MAX_DEPTH,
    MAX_NODES,
    NUMBER,
    PYTHON_WORDS,
    SURROGATE,
    Entry,
    LeftAlone,
    ListNode,
    Located,
    MapNode,
    Node,
    OutOfRange,
    Problems,
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

_BLANK = re.compile(r"[ \t\n\r]*")
_BRACKET = re.compile(r'[\[\]{}]|"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r"[A-Za-z_+.-][A-Za-z_0-9+.-]*")


def parse_json(source: Source, problems: Problems, left_alone: LeftAlone = no_unread_parts) -> Node | None:
    """None where nothing can be made of the text. `left_alone`: parts that may hold any value."""
    try:
        root = _Parser(source, problems).document()
        if root is not None and problems.has_deferred:
            problems.settle(left_alone(root))
        return root
    except Unreadable:
        return None


class _Parser:
    """Recursive descent; MAX_DEPTH bounds the recursion. Each method returns with `at` after the text that it read."""

    def __init__(self, source: Source, problems: Problems) -> None:
        self.source = source
        self.text = source.text
        self.problems = problems
        self.at = 0
        self.nodes = 0

    def document(self) -> Node | None:
        self.blank()
        if self.at == len(self.text):
            return None
        node = self.value(0)
        self.blank()
        if self.at < len(self.text):
            self.stop("text follows the end of the value", help="a JSON file holds one value")
        return node

    def value(self, depth: int) -> Node:
        start = self.at
        self.nodes += 1
        if self.nodes > MAX_NODES:
            check_count(self.nodes, self.here(), self.problems)
        first = self.text[start : start + 1]
        if first in ("{", "["):
            if depth == MAX_DEPTH:
                return self.deep_value()
            return self.mapping(depth) if first == "{" else self.list(depth)
        if first == '"':
            return self.string()
        if number := NUMBER.match(self.text, start):
            return self.number(number)
        return self.constant()

    def mapping(self, depth: int) -> MapNode:
        node = MapNode(self.source, self.at, self.at, {})
        self.at += 1
        self.blank()
        if not self.skip("}"):
            self.entry(node, depth)
            while self.more("}", node.start):
                self.entry(node, depth)
        node.end = self.at
        return node

    def entry(self, node: MapNode, depth: int) -> None:
        if self.text[self.at : self.at + 1] != '"':
            self.stop("expected a key in double quotes here")
        key = self.string()
        self.blank()
        if not self.skip(":"):
            self.stop("expected `:` here")
        self.blank()
        value = self.value(depth + 1)
        first = node.entries.setdefault(str(key.value), Entry(key, value))
        if first.key is not key:
            report_duplicate_key(key, first.key, self.problems)

    def list(self, depth: int) -> ListNode:
        node = ListNode(self.source, self.at, self.at, [])
        self.at += 1
        self.blank()
        if not self.skip("]"):
            node.items.append(self.value(depth + 1))
            while self.more("]", node.start):
                node.items.append(self.value(depth + 1))
        node.end = self.at
        return node

    def more(self, closing: str, opened: int) -> bool:
        """Whether a comma and another element follow; the closing bracket is passed over."""
        self.blank()
        if self.skip(closing):
            return False
        if not self.skip(","):
            self.fail_unclosed(closing, opened)
        comma = self.at - 1
        self.blank()
        if self.text.startswith(closing, self.at):
            self.at = comma
            self.stop(f"a comma before `{closing}`", help="JSON has no trailing commas; remove it")
        return True

    def string(self) -> ScalarNode:
        start = self.at
        try:
            value, self.at = scanstring(self.text, start + 1, True)
        except JSONDecodeError as error:
            self.bad_string(error)
        node = ScalarNode(self.source, start, self.at, value, quoted=True)
        if SURROGATE.search(value):
            self.problems.error(code="bad-surrogate", message="the text holds half of a surrogate pair", at=node)
            node.value = SURROGATE.sub("\ufffd", value)
        return node

    def number(self, found: re.Match[str]) -> ScalarNode:
        node = ScalarNode(self.source, self.at, found.end(), 0)
        self.at = found.end()
        if _WORD.match(self.text, self.at) or self.text[self.at : self.at + 1].isdigit():
            self.at = node.start
            self.stop("not a JSON number", help="no leading zero or plus sign, and digits on both sides of the point")
        try:
            node.value = fraction(found[0]) if found[1] or found[2] else parse_whole(found[0])
        except OutOfRange:
            node.value = beyond(found[0])
            self.problems.defer(code="number-range", message="the number is out of range", at=node)
        return node

    def deep_value(self) -> ScalarNode:
        """Pass over a list or mapping, without recursion and without a closer look."""
        start = self.at
        level = 0
        for found in _BRACKET.finditer(self.text, start):
            level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
            if level == 0:
                self.at = found.end()
                return too_deep(Located(self.source, start, self.at), self.problems)
        refuse_depth(Located(self.source, start, start + 1), self.problems)

    def constant(self) -> ScalarNode:
        word = _WORD.match(self.text, self.at)
        if word and word[0] in CONSTANTS:
            node = ScalarNode(self.source, self.at, word.end(), CONSTANTS[word[0]])
            self.at = word.end()
            return node
        self.stop("expected a JSON value here", help=_constant_help(self.text, self.at, word))

    # small steps

    def blank(self) -> None:
        if self.text[self.at : self.at + 1] <= " ":  # hardly ever a blank in an export
            found = _BLANK.match(self.text, self.at)
            self.at = found.end() if found else self.at

    def skip(self, character: str) -> bool:
        found = self.text[self.at : self.at + 1] == character
        self.at += found
        return found

    def here(self) -> Located:
        return Located(self.source, self.at, self.at + 1)

    # problems

    def stop(self, message: str, *, help: str | None = None) -> NoReturn:
        self.problems.error(code="json-syntax", message=message, at=self.here(), help=help)
        raise Unreadable

    def fail_unclosed(self, closing: str, opened: int) -> NoReturn:
        opening = Located(self.source, opened, opened + 1)
        if self.at == len(self.text):
            self.at = opened
            self.stop(f"this `{opening.raw}` is never closed", help=f"close it with `{closing}`")
        self.problems.error(
            code="json-syntax",
            message=f"expected `,` or `{closing}` here",
            at=self.here(),
            related=(self.problems.related(opening, "what it belongs to begins here"),),
        )
        raise Unreadable

    def bad_string(self, error: JSONDecodeError) -> NoReturn:
        if error.msg.startswith("Unterminated"):
            self.stop("this quote is never closed")
        self.at = error.pos
        if error.msg.startswith("Invalid control"):
            self.stop("a control character inside quotes", help="write it as an escape, such as `\\n` or `\\t`")
        self.stop("not a JSON escape", help="write a backslash as `\\\\`")


def _constant_help(text: str, at: int, word: re.Match[str] | None) -> str | None:
    if word and word[0] in PYTHON_WORDS:
        return f"write `{PYTHON_WORDS[word[0]]}`"
    if word and word[0].lstrip("+-") in ("NaN", "Infinity"):
        return "JSON has no such number"
    if text.startswith("'", at):
        return "JSON text stands in double quotes"
    if text.startswith(("//", "/*", "#"), at):
        return "JSON has no comments; a YAML rule file has"
    return "text stands in double quotes" if word else None
