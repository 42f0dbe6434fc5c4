"""What all calls of a tool had in common, gathered in one pass.

A call is remembered by what came before it in its session: its *signature*. Calls with the same signature are one
entry, so memory grows with the variety of the traffic and not with its length, up to a bound.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct, field

from bylaw.guard.proposals.paths import Said, Scalar, said, scalars
from bylaw.model.events import ToolCall, ToolResult

MOST_TOOLS = 1_000
MOST_SIGNATURES = 5_000
"""of one tool; more variety than that has no order to find"""
MOST_VALUES = 32
"""of one argument that are told apart"""
MOST_REMEMBERED = 256
"""values of one argument in one session"""


class Earlier(Struct, frozen=True):
    """Something that came before a call: a call of a tool, or a result of it that said so; with `path`, one whose
    argument there is the same."""

    tool: str
    said: Said | None = None
    path: str | None = None


class PathFacts(Struct):
    """One argument of one tool."""

    present: int = 0
    numbers: int = 0
    highest: float = float("-inf")
    at_highest: int = 0
    whole: bool = True
    values: Counter[Any] | None = field(default_factory=Counter)
    """None: too many to tell apart"""

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
    signatures: Counter[frozenset[Earlier]] | None = field(default_factory=Counter)
    """None: too many to tell apart"""

    @property
    def sessions(self) -> int:
        return sum(self.per_session.values())


class SessionFacts:
    """One session as it goes on."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._seen: dict[tuple[str, Said | None], dict[str, set[Scalar]]] = {}

    def signature(self, values: dict[str, Scalar]) -> frozenset[Earlier]:
        found: list[Earlier] = []
        for (tool, what), known in self._seen.items():
            found.append(Earlier(tool, what))
            found += [Earlier(tool, what, path) for path, value in values.items() if value in known.get(path, ())]
        return frozenset(found)

    def called(self, tool: str, values: dict[str, Scalar]) -> None:
        self.counts[tool] += 1
        self._remember((tool, None), values)

    def answered(self, result: ToolResult) -> None:
        call = result.call
        if call is None or result.is_error:
            return
        for what in said(result.content):
            self._remember((call.name, what), scalars(call.arguments))

    def _remember(self, event: tuple[str, Said | None], values: dict[str, Scalar]) -> None:
        known = self._seen.get(event)
        if known is None:
            if len(self._seen) >= MOST_REMEMBERED:
                return
            known = self._seen[event] = {}
        for path, value in values.items():
            kept = known.setdefault(path, set())
            if len(kept) < MOST_REMEMBERED:
                kept.add(value)


class Facts:
    """Of all traffic that rules are mined from."""

    def __init__(self) -> None:
        self.tools: dict[str, ToolFacts] = {}
        self.calls = self.sessions = 0
        self.unnamed = 0
        """calls of tools beyond the bound"""

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
        session.called(call.name, values)

    @property
    def too_varied(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, tool in self.tools.items() if tool.signatures is None))

    def end(self, session: SessionFacts) -> None:
        self.sessions += 1
        for tool, count in session.counts.items():
            if tool in self.tools:
                self.tools[tool].per_session[count] += 1
