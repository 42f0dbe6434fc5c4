"""Which answer issued the call that a tool's span recorded, and what either of them leaves out.

Recorders differ in where they leave the facts. A call may be told by the answer that issued it, by the span of the
tool, or by both. Whatever one place leaves out is filled in from the other, by the id of the call; a tool's span
without an id is the next call of that name.
"""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct

from bylaw.model.events import Origin
from bylaw.traces.assembly.content import AssistantContent
from bylaw.traces.assembly.session_buffer import same_value
from bylaw.traces.formats.spans.span import ModelCall, Span, ToolRun


class Turn(Struct, eq=False):
    """A model's span, with the calls of its answer as they will be told."""

    span: Span
    when: float
    call: ModelCall
    said: AssistantContent | None
    origin: Origin


class Run(Struct, eq=False):
    """A tool's span."""

    span: Span
    when: float
    tool: ToolRun
    origin: Origin
    turn: Turn | None = None
    """the answer that tells of the call too; None where only the span does"""
    told: bool = False


def join(turns: list[Turn], runs: list[Run]) -> list[Run]:
    """Find each run's turn. Both are in the order of time. Returns the runs whose turn tells another story."""
    if not runs:
        return []
    open_calls = _Calls(turns)
    named = [run for run in runs if run.tool.call_id is not None]
    # Those with ids first, so that none without takes a call that is another's.
    found = [open_calls.join(run) for run in named]
    found += [open_calls.join(run) for run in runs if run.tool.call_id is None]
    return [run for run in found if run is not None]


class _Calls:
    """The calls that answers tell of and no span has claimed."""

    def __init__(self, turns: list[Turn]) -> None:
        self._by_id: dict[str, list[_Place]] = {}
        self._by_name: dict[tuple[Origin, str], list[_Place]] = {}
        self._by_turn: dict[tuple[str, str], list[_Place]] = {}
        for turn in turns:
            for number, use in enumerate(turn.said.uses if turn.said is not None else ()):
                place = _Place(turn, number)
                self._by_name.setdefault((turn.origin, str(use["name"])), []).append(place)
                self._by_turn.setdefault((turn.span.id, str(use["name"])), []).append(place)
                if isinstance(use.get("id"), str) and use["id"]:
                    self._by_id.setdefault(use["id"], []).append(place)

    def join(self, run: Run) -> Run | None:
        """Returns the run where its arguments are not those of the answer."""
        place = self._find(run)
        if place is None:
            return None
        place.taken = True
        run.turn = place.turn
        return run if not _fill(run.tool, place.turn, place.number, run.span) else None

    def _find(self, run: Run) -> _Place | None:
        tool = run.tool
        if tool.call_id is not None:
            return _latest(self._by_id.get(tool.call_id, []), run.when)
        places = self._by_name.get((run.origin, tool.name), [])
        latest = _latest(places, run.when)
        if latest is None:
            return None
        beside = [place for place in self._by_turn[latest.turn.span.id, tool.name] if not place.taken]
        return next((place for place in beside if _same(tool, place)), latest)


class _Place(Struct, eq=False):
    """A call of an answer."""

    turn: Turn
    number: int
    taken: bool = False


def _latest(places: list[_Place], when: float) -> _Place | None:
    """The last of these that was issued by then; clocks differ, so the first one where none was."""
    end = bisect_right(places, when, key=lambda place: place.turn.when)
    earlier = (places[at] for at in range(end - 1, -1, -1) if not places[at].taken)
    return next(earlier, None) or next((place for place in places if not place.taken), None)


def _same(tool: ToolRun, place: _Place) -> bool:
    assert place.turn.said is not None
    given, _ = place.turn.said.arguments[place.number]
    return same_value(tool.arguments, given)


def _fill(tool: ToolRun, turn: Turn, number: int, span: Span) -> bool:
    """Let each tell what the other does not. False where both tell of arguments, and not of the same."""
    assert turn.said is not None
    use = turn.said.uses[number]
    if not use.get("id"):
        use["id"] = tool.call_id or span.id
    tool.call_id = str(use["id"])
    given, raw = turn.said.arguments[number]
    if given is None and raw is None:
        turn.said.arguments[number] = (tool.arguments, tool.raw_arguments)
        use["input"] = tool.arguments
        return True
    both = isinstance(given, dict) and isinstance(tool.arguments, dict)
    return not both or same_value(given, tool.arguments)
