"""The values that a rule needs at a call, and those that the recording of a session lacks."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from bylaw.engine.matching import compile_names
from bylaw.engine.temporal.shape import atoms, windows
from bylaw.guard.backtest.model import Lack
from bylaw.model.demand import Attempt, Calls, Temporal, looks_at_arguments
from bylaw.model.events import Event, Message, Request, Response, ToolCall, ToolResult
from bylaw.model.predicate import AllOf, AnyOf, ArgumentIs, NotOf, Predicate, counts
from bylaw.model.rule import Rule
from bylaw.model.temporal import AgentIs, ResultOf, Says, StopsFor, ToolIs, UserSays
from bylaw.text.regex import Matches

MOST_OPEN = 1_024
"""calls without a result that are remembered"""


class Needs(Struct, frozen=True, kw_only=True):
    """What one rule needs at calls of one tool."""

    arguments: bool = False
    results: Matches | None = None
    """results of the tools that match; None: of none"""
    errors: Matches | None = None
    """whether calls of the tools that match failed"""
    responses: bool = False
    messages: bool = False
    times: bool = False
    agents: bool = False


def needs_of(rule: Rule, tool: str) -> Needs | None:
    """None if the rule needs nothing."""
    demand = rule.demand
    if isinstance(demand, Attempt):
        timed = any(count.over == "window" for count in counts(demand.when))
        asks_arguments = any(isinstance(part, ArgumentIs) for part in _parts(demand.when))
        needs = Needs(arguments=asks_arguments, times=timed)
    elif isinstance(demand, Temporal):
        needs = _temporal(demand, tool, conditional=bool(rule.when))
    else:
        asks_arguments = any(compile_names(calls)(tool) for calls, _ in looks_at_arguments(demand))
        needs = Needs(arguments=asks_arguments, responses=bool(rule.when))
    return None if needs == Needs() else needs


def _temporal(demand: Temporal, tool: str, *, conditional: bool) -> Needs:
    found = atoms(demand.formula)
    results = [atom for atom in found if isinstance(atom, ResultOf)]
    failing = [atom for atom in results if any(test.root == "error" for test in atom.tests)]
    calls = [atom for atom in found if isinstance(atom, ToolIs) and atom.tests]
    return Needs(
        arguments=any(compile_names(Calls(atom.names))(tool) for atom in calls),
        results=_named(results),
        errors=_named(failing),
        responses=conditional or any(isinstance(atom, Says | StopsFor) for atom in found),
        messages=any(isinstance(atom, UserSays) for atom in found),
        times=any(window.unit == "seconds" for window in windows(demand.formula)),
        agents=any(isinstance(atom, AgentIs) for atom in found),
    )


def _named(results: list[ResultOf]) -> Matches | None:
    return compile_names(Calls(tuple(name for one in results for name in one.names))) if results else None


def _parts(predicate: Predicate) -> Iterator[Predicate]:
    yield predicate
    match predicate:
        case AllOf(of=of) | AnyOf(of=of):
            for part in of:
                yield from _parts(part)
        case NotOf(of=part):
            yield from _parts(part)


class RecordedSession:
    """Which values the recording of one session had so far, and the results of its replay."""

    __slots__ = ("_has_messages", "_has_text", "_open", "_without_status", "announced", "matched", "stopped")

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, int | None]] = {}
        """calls without a result: tool and turn"""
        self._without_status: set[str] = set()
        """tools with a result that does not say whether the call failed"""
        self._has_messages = self._has_text = False
        self.announced: set[str] = set()
        """runs that the guard knows"""
        self.matched: set[str] = set()
        """rules that matched a call"""
        self.stopped = False

    def observe(self, event: Event) -> None:
        if isinstance(event, ToolResult):
            self._open.pop(call_id_of(event), None)
            if event.is_error is None and len(self._without_status) < MOST_OPEN:
                self._without_status.add((event.call.name if event.call is not None else event.name) or "")
        elif isinstance(event, Response):
            self._has_text = event.text is not None
            request = event.request
            self._has_messages |= request is not None and request.held_messages is not None
        elif isinstance(event, Request):
            self._has_messages |= event.held_messages is not None
        elif isinstance(event, Message):
            self._has_messages = True

    def add_call(self, call: ToolCall) -> None:
        self._open[call.call_id] = (call.name, call.turn)
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def lacks(self, call: ToolCall, needs: Needs) -> list[Lack]:
        found: list[Lack] = []
        if needs.arguments and call.arguments is None:
            found.append("arguments")
        # A call of the same turn has no result yet, as in the live session.
        earlier = (tool for tool, turn in self._open.values() if turn is None or turn != call.turn)
        if needs.results is not None and any(map(needs.results, earlier)):
            found.append("results")
        if needs.results is not None and any(map(needs.results, call.unordered)):
            found.append("order")
        if needs.errors is not None and any(map(needs.errors, self._without_status)):
            found.append("errors")
        if needs.responses and not self._has_text:
            found.append("responses")
        if needs.messages and not self._has_messages:
            found.append("messages")
        if needs.times and call.time is None:
            found.append("times")
        if needs.agents and call.origin.agent is None:
            found.append("agents")
        return found


def call_id_of(result: ToolResult) -> str:
    return result.call.call_id if result.call is not None else result.call_id or ""
