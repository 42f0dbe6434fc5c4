"""Two traces, turn against turn: sessions and turns are paired as `diff` pairs them, and nothing is gated.

Both traces are held in memory, since the first turn of the one may answer to any turn of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.compile import compile_rules
from bylaw.inspect.differences import differences, pair_calls
from bylaw.inspect.model import (
    Called,
    Entry,
    EventEntry,
    PairEntry,
    SessionPair,
    SideBySide,
    Totals,
    TurnEntry,
)
from bylaw.inspect.selection import Selection
from bylaw.inspect.timeline import Timeline
from bylaw.model.events import ToolResult
from bylaw.model.ports import TraceSource
from bylaw.model.trace import Trace
from bylaw.text.lexical import Lexicon
from bylaw.traces.comparison.compare import Comparison
from bylaw.traces.comparison.pairing import pair_sessions
from bylaw.traces.comparison.sessions import Recording, read_side
from bylaw.traces.comparison.steps import Step


class _Side(Struct):
    """One of the two traces."""

    name: str
    recordings: list[Recording]
    entries: dict[int, TurnEntry]
    """by the identity of the response"""
    totals: Totals
    notes: list[str]

    def entry(self, step: Step | None) -> TurnEntry | None:
        return None if step is None else self.entries[id(step.response)]


def compare(baseline: TraceSource, candidate: TraceSource, selection: Selection | None = None) -> SideBySide:
    before, after = _read(baseline), _read(candidate)
    lexicon = _lexicon(before, after)
    paired = _paired(before.recordings, after.recordings)
    sessions = _marked([_session_pair(b, c, before, after, lexicon) for b, c in paired])
    pairs = [pair for session in sessions for pair in session.pairs]
    first = next((pair for pair in pairs if pair.first), None)
    shown = _selected(sessions, selection or Selection())
    return SideBySide(
        names=(before.name, after.name),
        totals=(before.totals, after.totals),
        notes=(*before.notes, *after.notes),
        sessions=shown,
        pairs=len(pairs),
        differing=sum(bool(pair.differences) for pair in pairs),
        first=first,
        first_session=next((_name(one) for one in sessions if any(pair.first for pair in one.pairs)), None),
        input_differs_at=next((pair.turn for pair in pairs if pair.other_input), None),
        shown=sum(len(session.pairs) for session in shown),
    )


def _read(source: TraceSource) -> _Side:
    events = tuple(source)
    trace = Trace(
        name=source.name,
        format=source.format,
        events=events,
        complete=source.complete,
        notes=tuple(source.notes),
        skipped=source.skipped,
    )
    side = read_side([trace], compile_rules(()))
    timeline = Timeline(trace)
    return _Side(source.name, side.recordings, _entries(list(timeline)), timeline.totals, side.notes)


def _entries(shown: Sequence[Entry]) -> dict[int, TurnEntry]:
    """Turns with all results of their calls, also those that came late: when it came back is no difference."""
    late: dict[tuple[int | None, str | None], list[ToolResult]] = {}
    for entry in shown:
        if isinstance(entry, EventEntry) and isinstance(entry.event, ToolResult):
            late.setdefault((entry.event.turn, entry.event.call_id), []).append(entry.event)
    turns = (entry for entry in shown if isinstance(entry, TurnEntry))
    return {id(turn.response): replace(turn, calls=tuple(_answered(one, late) for one in turn.calls)) for turn in turns}


def _answered(called: Called, late: dict[tuple[int | None, str | None], list[ToolResult]]) -> Called:
    results = late.get((called.call.turn, called.call.call_id))
    return replace(called, results=(*called.results, *results)) if results else called


def _lexicon(before: _Side, after: _Side) -> Lexicon:
    return Lexicon(step.text for side in (before, after) for one in side.recordings for step in one.steps if step.text)


_Pair = tuple[Recording | None, Recording | None]


def _paired(baseline: Sequence[Recording], candidate: Sequence[Recording]) -> list[_Pair]:
    """In the baseline's order, what only the candidate has last. Trials of one task are taken in turn."""
    pairing = pair_sessions(baseline, candidate)
    answers: dict[int, Recording] = {}
    extra = list(pairing.extra)
    for group in pairing.groups:
        answers |= {id(b): c for b, c in zip(group.baseline, group.candidate, strict=False)}
        extra += group.candidate[len(group.baseline) :]
    return [*((b, answers.get(id(b))) for b in baseline if b.steps), *((None, c) for c in extra)]


def _session_pair(
    b: Recording | None, c: Recording | None, before: _Side, after: _Side, lexicon: Lexicon
) -> SessionPair:
    pairs = tuple(_pair(before.entry(left), after.entry(right)) for left, right in _steps(b, c, lexicon))
    return SessionPair(baseline=b.session if b else None, candidate=c.session if c else None, pairs=pairs)


def _steps(b: Recording | None, c: Recording | None, lexicon: Lexicon) -> Iterator[tuple[Step | None, Step | None]]:
    if b is not None and c is not None:
        yield from Comparison(b, c, lexicon).sides
    elif b is not None:
        yield from ((step, None) for step in b.steps)
    elif c is not None:
        yield from ((None, step) for step in c.steps)


def _pair(b: TurnEntry | None, c: TurnEntry | None) -> PairEntry:
    calls = pair_calls(b, c)
    return PairEntry(
        baseline=b,
        candidate=c,
        differences=differences(b, c, calls),
        calls=calls,
        other_input=b is not None and c is not None and b.input.heard != c.input.heard,
    )


def _marked(sessions: Sequence[SessionPair]) -> list[SessionPair]:
    """The first pair that differs says so itself."""
    marked = list(sessions)
    for at, session in enumerate(marked):
        for place, pair in enumerate(session.pairs):
            if pair.differences:
                pairs = (*session.pairs[:place], replace(pair, first=True), *session.pairs[place + 1 :])
                marked[at] = replace(session, pairs=pairs)
                return marked
    return marked


def _selected(sessions: Sequence[SessionPair], selection: Selection) -> tuple[SessionPair, ...]:
    if selection.is_all:
        return tuple(sessions)
    kept = (
        replace(session, pairs=tuple(replace(p, whole=selection.whole) for p in session.pairs if _takes(selection, p)))
        for session in sessions
    )
    return tuple(session for session in kept if session.pairs)


def _takes(selection: Selection, pair: PairEntry) -> bool:
    """By the pair's own index; by a session, an agent or a tool of either side."""
    return selection.takes_index(pair.turn) and any(
        selection.takes_origin(entry.origin)
        and (not selection.tools or any(selection.takes_tool(called.call) for called in entry.calls))
        for entry in (pair.baseline, pair.candidate)
        if entry is not None
    )


def _name(session: SessionPair) -> str | None:
    return session.baseline if session.baseline is not None else session.candidate
