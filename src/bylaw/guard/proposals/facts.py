"""What all calls of a tool have in common, gathered in one pass. Everything is bounded, since a trace may hold
anything.

A call is remembered by its *signature*: the events before it in its session. Calls with the same signature are one
entry, so memory grows with the variety of the traffic and not with its length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field

from bylaw.model.events import ToolCall, ToolResult

Scalar: TypeAlias = "str | int | float | bool"
Flag: TypeAlias = tuple[str, bool]
"""a key of a result, or "" for the result itself, and the boolean there"""

MOST_PATHS = 64
MOST_DEPTH = 3
LONGEST_TEXT = 200
HUGE = 10**15
"""larger numbers are identifiers or noise, and floats cannot distinguish them; NaN is excluded too"""
LONGEST_RESULT = 10_000
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,127}")


def scalars(arguments: Any) -> dict[str, Scalar]:
    """Path → value, for values that rules can compare. Lists are left out, since their elements have no fixed place."""
    found: dict[str, Scalar] = {}
    if isinstance(arguments, dict):
        for path, value in _walk(arguments, "", 0):
            if len(found) >= MOST_PATHS:
                break
            found[path] = value
    return found


def _walk(value: dict[Any, Any], prefix: str, depth: int) -> Iterator[tuple[str, Scalar]]:
    for key, one in value.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            continue
        if isinstance(one, dict) and depth < MOST_DEPTH:
            yield from _walk(one, f"{prefix}{key}.", depth + 1)
        elif _is_plain(one):
            yield prefix + key, one


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT and value.isprintable()
    return isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < HUGE)


def booleans(content: Any) -> list[Flag]:
    """The booleans in a result: `true`, or `{"verified": true}`, as values or as JSON text."""
    if isinstance(content, str) and len(content) <= LONGEST_RESULT and content[:1] in "{tf":
        try:
            content = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            return []
    if isinstance(content, bool):
        return [("", content)]
    if not isinstance(content, dict):
        return []
    keys = (key for key in list(content)[:MOST_PATHS] if isinstance(key, str) and _KEY.fullmatch(key))
    return [(key, content[key]) for key in keys if isinstance(content[key], bool)]


def can_be_named(tool: str) -> bool:
    """Whether a formula and a comment can contain the name."""
    return bool(_NAME.fullmatch(tool))


def slug(text: str) -> str:
    """The text as part of a rule id."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)


MOST_TOOLS = 1_000
MOST_SIGNATURES = 5_000
"""of one tool; with more variety there is no order to find"""
MOST_VALUES = 32
"""of one argument that are distinguished"""
MOST_REMEMBERED = 256
"""values of one argument in one session"""


class EarlierEvent(Struct, frozen=True):
    """An event before a call: a call of a tool, or a result of it with this boolean. With `path`, the argument there is
    the same as in the call."""

    tool: str
    flag: Flag | None = None
    path: str | None = None


class PathFacts(Struct):
    """One argument of one tool."""

    present: int = 0
    numbers: int = 0
    highest: float = float("-inf")
    at_highest: int = 0
    whole: bool = True
    values: Counter[Any] | None = field(default_factory=Counter)
    """None: too many"""

    def add(self, value: Scalar) -> None:
        self.present += 1
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.numbers += 1
            self.whole = self.whole and value == int(value)
            if value >= self.highest:
                self.at_highest = self.at_highest + 1 if value == self.highest else 1
                self.highest = value
        if self.values is not None:
            self.values[(type(value) is bool, value)] += 1
            if len(self.values) > MOST_VALUES:
                self.values = None


class ToolFacts(Struct):
    calls: int = 0
    paths: dict[str, PathFacts] = field(default_factory=dict)
    per_session: Counter[int] = field(default_factory=Counter)
    """calls in a session → sessions"""
    signatures: Counter[frozenset[EarlierEvent]] | None = field(default_factory=Counter)
    """None: too many"""

    @property
    def sessions(self) -> int:
        return sum(self.per_session.values())


class SessionFacts:
    """One session while it is read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._seen: dict[tuple[str, Flag | None], dict[str, set[Scalar]]] = {}

    def signature(self, values: dict[str, Scalar]) -> frozenset[EarlierEvent]:
        found: list[EarlierEvent] = []
        for (tool, what), known in self._seen.items():
            found.append(EarlierEvent(tool, what))
            found += [EarlierEvent(tool, what, path) for path, value in values.items() if value in known.get(path, ())]
        return frozenset(found)

    def add_call(self, tool: str, values: dict[str, Scalar]) -> None:
        self.counts[tool] += 1
        self._remember((tool, None), values)

    def add_result(self, result: ToolResult) -> None:
        call = result.call
        if call is None or result.is_error:
            return
        for what in booleans(result.content):
            self._remember((call.name, what), scalars(call.arguments))

    def _remember(self, event: tuple[str, Flag | None], values: dict[str, Scalar]) -> None:
        known = self._seen.get(event)
        if known is None:
            if len(self._seen) >= MOST_REMEMBERED:
                return
            known = self._seen[event] = {}
        for path, value in values.items():
            values_there = known.setdefault(path, set())
            if len(values_there) < MOST_REMEMBERED:
                values_there.add(value)


class Facts:
    """The facts of all traffic that rules are mined from."""

    def __init__(self) -> None:
        self.tools: dict[str, ToolFacts] = {}
        self.calls = self.sessions = 0
        self.unnamed = 0
        """calls of tools beyond MOST_TOOLS"""

    def call(self, call: ToolCall, session: SessionFacts) -> None:
        self.calls += 1
        tool = self.tools.get(call.name)
        if tool is None:
            if len(self.tools) >= MOST_TOOLS:
                self.unnamed += 1
                return
            tool = self.tools[call.name] = ToolFacts()
        values = scalars(call.arguments)
        tool.calls += 1
        for path, value in values.items():
            tool.paths.setdefault(path, PathFacts()).add(value)
        if tool.signatures is not None:
            tool.signatures[session.signature(values)] += 1
            if len(tool.signatures) > MOST_SIGNATURES:
                tool.signatures = None
        session.add_call(call.name, values)

    @property
    def too_varied(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, tool in self.tools.items() if tool.signatures is None))

    def end(self, session: SessionFacts) -> None:
        self.sessions += 1
        for tool, count in session.counts.items():
            if tool in self.tools:
                self.tools[tool].per_session[count] += 1
