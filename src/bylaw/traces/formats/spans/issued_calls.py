"""The spans of a session that belong together: each tool's span with the answer that issued its call."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct

from bylaw.model.events import Origin
from bylaw.traces.assembly.content import EVERYTHING, AssistantContent
from bylaw.traces.formats.spans.span import ModelCall, Span, ToolRun, has_same_arguments

_MOST_WAITING = 256
"""the most open calls that are compared with a tool's span; older ones are taken to have no span"""
_MOST_NAMES = 100
"""the most tools in `unordered`; if there are more, it is `*`, which means any tool"""


class Turn(Struct, eq=False):
    """A model's span, with the content of its answer."""

    span: Span
    when: float
    call: ModelCall
    answer: AssistantContent | None
    origin: Origin
    unread: frozenset[str] = frozenset()
    """tools of calls that were recorded twice, differently"""


class Run(Struct, eq=False):
    """A tool's span."""

    span: Span
    when: float
    ended: float
    tool: ToolRun
    origin: Origin
    turn: Turn | None = None
    """the turn whose answer holds the call too; None if only the span does"""
    is_guess: bool = False
    """nothing recorded says which of several calls of the tool this one is"""
    has_result: bool = False
    """the result was emitted"""
    disagrees: bool = False
    """the call in the answer has another name, or other arguments"""
    unordered: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether there is a result: otherwise the recording stopped before the tool did."""
        return self.span.end is not None or self.tool.result is not UNSET or bool(self.tool.is_error)


# Which answer issued the call that a tool's span recorded


class IssuedCall(Struct, eq=False):
    """A call in an answer."""

    turn: Turn
    number: int
    has_id: bool
    """whether the answer gives it an id; `claim` may add one later"""
    taken: bool = False

    @property
    def answer(self) -> AssistantContent:
        assert self.turn.answer is not None
        return self.turn.answer

    @property
    def use(self) -> dict[str, Any]:
        return self.answer.uses[self.number]

    @property
    def given(self) -> Any:
        arguments, raw = self.answer.arguments[self.number]
        return raw if arguments is None else arguments


class IssuedCalls:
    """The calls in answers that no tool's span has claimed."""

    def __init__(self, turns: list[Turn]) -> None:
        self._by_id: dict[str, list[IssuedCall]] = {}
        self._by_name: dict[tuple[Origin, str], list[IssuedCall]] = {}
        self._by_tool: dict[str, list[IssuedCall]] = {}
        self._by_turn: dict[tuple[str, str], list[IssuedCall]] = {}
        for turn in turns:
            for number, use in enumerate(turn.answer.uses if turn.answer is not None else ()):
                call = IssuedCall(turn, number, has_id=bool(use.get("id")))
                self._by_name.setdefault((turn.origin, str(use["name"])), []).append(call)
                self._by_tool.setdefault(str(use["name"]), []).append(call)
                self._by_turn.setdefault((turn.span.id, str(use["name"])), []).append(call)
                if call.has_id and isinstance(use["id"], str):
                    self._by_id.setdefault(use["id"], []).append(call)

    def claim(self, run: Run) -> bool:
        """Find the turn of a run, and let both fill in what the other lacks. False if they disagree."""
        call = self._find(run)
        if call is None:
            return True
        call.taken = True
        name = str(call.use["name"])
        self._by_name[call.turn.origin, name].remove(call)
        self._by_turn[call.turn.span.id, name].remove(call)
        if call.has_id and isinstance(call.use["id"], str):
            self._by_id[call.use["id"]].remove(call)
        run.turn = call.turn
        if run.is_guess:
            call.turn.unread |= {run.tool.name}
        tool, answer, number = run.tool, call.answer, call.number
        use = answer.uses[number]
        tool.name = tool.name or str(use["name"])
        if not use.get("id"):
            use["id"] = tool.call_id or run.span.id
        tool.call_id = str(use["id"])
        arguments, raw = answer.arguments[number]
        if arguments is None and raw is None:
            answer.arguments[number] = (tool.arguments, tool.raw_arguments)
            use["input"] = arguments = tool.arguments
        both = isinstance(arguments, dict) and isinstance(tool.arguments, dict)
        if use["name"] == tool.name and (not both or has_same_arguments(arguments, tool.arguments)):
            return True
        call.turn.unread |= {use["name"], tool.name}
        return False

    def _find(self, run: Run) -> IssuedCall | None:
        """Find the call by its id; else the open call of that tool with the same arguments; else the first open one."""
        tool = run.tool
        if tool.call_id is not None and tool.call_id in self._by_id:
            return _latest(self._by_id[tool.call_id], run.when)
        waiting = self._waiting(run)
        if tool.call_id is not None:  # an id that no answer has: some answers are recorded without ids
            waiting = [call for call in waiting if not call.has_id]
        if len(waiting) > 1:
            given = [call for call in waiting if has_same_arguments(tool.given, call.given)]
            run.is_guess = not given and not all(has_same_arguments(waiting[0].given, call.given) for call in waiting)
            waiting = given or waiting
        elif waiting and tool.name in waiting[0].turn.unread:  # it is left over by a guess
            run.is_guess = not has_same_arguments(tool.given, waiting[0].given)
        return waiting[0] if waiting else self._issued_elsewhere(run)

    def _issued_elsewhere(self, run: Run) -> IssuedCall | None:
        """An open call by another agent with the same arguments: frameworks run tools beside the agent's own span."""
        calls = self._by_tool.get(run.tool.name, [])
        end = bisect_right(calls, run.when, key=lambda call: call.turn.when)
        is_open = (call for call in calls[max(0, end - _MOST_WAITING) : end] if not call.taken)
        if run.tool.call_id is not None:
            is_open = (call for call in is_open if not call.has_id)
        return next((call for call in is_open if has_same_arguments(run.tool.given, call.given)), None)

    def _waiting(self, run: Run) -> list[IssuedCall]:
        """Open calls of the tool that were issued by then, oldest first; clocks differ, so else the next one."""
        linked = (call for link in run.span.links for call in self._by_turn.get((link, run.tool.name), ()))
        if some := list(islice(linked, _MOST_WAITING)):
            return some
        calls = self._by_name.get((run.origin, run.tool.name), [])
        end = bisect_right(calls, run.when, key=lambda call: call.turn.when)
        return calls[max(0, end - _MOST_WAITING) : end] or calls[:1]


def _latest(calls: list[IssuedCall], when: float) -> IssuedCall | None:
    """The last call that was issued by then; clocks differ, so the first one if none was."""
    if not calls:
        return None
    return calls[max(0, bisect_right(calls, when, key=lambda call: call.turn.when) - 1)]


def mark_unordered(steps: list[Turn | Run]) -> list[Run]:
    """Find the runs that start when another one of their turn ends, or at an unknown time."""
    found: list[Run] = []
    latest: dict[Origin, Turn] = {}
    by_turn: dict[int, list[Run]] = {}
    for one in steps:
        if isinstance(one, Turn):
            latest[one.origin] = one
        else:
            by_turn.setdefault(id(one.turn or latest.get(one.origin)), []).append(one)
    for runs in by_turn.values():
        if len(runs) > 1:
            found += _compare_runs(runs)
    return found


def _compare_runs(runs: list[Run]) -> list[Run]:
    over = [run for run in runs if run.is_over]
    results = Counter(run.tool.name for run in over)
    untimed = Counter(run.tool.name for run in over if run.span.end is None)
    by_end: dict[float, Counter[str]] = {}
    for run in over:
        by_end.setdefault(run.ended, Counter())[run.tool.name] += 1
    for run in runs:
        is_over = run.is_over
        if run.span.start is None:  # nothing is known: an answer says when the call was issued, not when it ran
            groups = [(results, is_over)]
        else:
            groups = [
                (by_end.get(run.when, Counter()), is_over and run.ended == run.when),
                (untimed, is_over and run.span.end is None),
            ]
        run.unordered = _other_names(groups, run.tool.name)
    return [run for run in runs if run.unordered]


def _other_names(groups: Sequence[tuple[Counter[str], bool]], own: str) -> tuple[str, ...]:
    """The tools of the other runs in the groups, where a run of the tool `own` asks.

    A group counts runs by tool. Its flag says whether the run that asks is counted too.
    """
    # two more than allowed: enough to see that there are too many, even if `own` is one of them
    found = {name for group, _ in groups for name in islice(group, _MOST_NAMES + 2) if name != own}
    if len(found) > _MOST_NAMES:
        return EVERYTHING
    has_other_run = any(group[own] > counts_asking for group, counts_asking in groups)
    return tuple(sorted({*found, own} if has_other_run else found))
