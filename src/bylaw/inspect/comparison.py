"""Two traces, turn by turn: sessions and turns are paired as `diff` pairs them, and the differences are listed.

A value that only one side recorded does not count as a difference. Ids of calls are not compared. Both
traces are held in memory, since any two turns may be counterparts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from rapidfuzz.distance import Levenshtein

from bylaw.engine.compile import compile_rules
from bylaw.inspect.model import (
    CallWithResults,
    Difference,
    Entry,
    EventEntry,
    PairEntry,
    Selection,
    SessionPair,
    SideBySide,
    Totals,
    TurnEntry,
)
from bylaw.inspect.timeline import Timeline
from bylaw.model.canonical import canonical_json
from bylaw.model.events import ToolResult, Trace
from bylaw.model.ports import TraceSource
from bylaw.text.similarity import Lexicon
from bylaw.traces.comparison.compare import Comparison, pair_sessions
from bylaw.traces.comparison.recording import Recording, Step, arguments, read_side

CallPair: TypeAlias = tuple[int | None, int | None]


class _ComparedTrace(Struct):
    """One of the two traces."""

    recordings: list[Recording]
    entries: dict[int, TurnEntry]
    """by the identity of the response"""
    totals: Totals
    notes: list[str]

    def entry(self, step: Step | None) -> TurnEntry | None:
        return None if step is None else self.entries[id(step.response)]


def compare(baseline: TraceSource, candidate: TraceSource, selection: Selection | None = None) -> SideBySide:
    before, after = _read(baseline), _read(candidate)
    steps = [step for side in (before, after) for one in side.recordings for step in one.steps]
    lexicon = Lexicon(step.text for step in steps if step.text)
    paired = _pair_recordings(before.recordings, after.recordings)
    sessions = _mark_first([_pair_session(b, c, before, after, lexicon) for b, c in paired])
    pairs = [pair for session in sessions for pair in session.pairs]
    first = next((session for session in sessions if any(pair.first for pair in session.pairs)), None)
    shown = _select(sessions, selection or Selection())
    return SideBySide(
        names=(baseline.name, candidate.name),
        totals=(before.totals, after.totals),
        notes=(*before.notes, *after.notes),
        sessions=shown,
        pairs=len(pairs),
        differing=sum(bool(pair.differences) for pair in pairs),
        first=next((pair for pair in pairs if pair.first), None),
        first_session=None if first is None else first.candidate if first.baseline is None else first.baseline,
        input_differs_at=next((pair.turn for pair in pairs if pair.other_input), None),
        shown=sum(len(session.pairs) for session in shown),
    )


def _read(source: TraceSource) -> _ComparedTrace:
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
    return _ComparedTrace(side.recordings, _turn_entries(list(timeline)), timeline.totals, side.notes)


def _turn_entries(entries: Sequence[Entry]) -> dict[int, TurnEntry]:
    """Turns with all results of their calls, late ones included: when a result came back does not count."""
    late: dict[tuple[int | None, str | None], list[ToolResult]] = {}
    for entry in entries:
        if isinstance(entry, EventEntry) and isinstance(entry.event, ToolResult):
            late.setdefault((entry.event.turn, entry.event.call_id), []).append(entry.event)

    def with_late_results(called: CallWithResults) -> CallWithResults:
        results = late.get((called.call.turn, called.call.call_id))
        return replace(called, results=(*called.results, *results)) if results else called

    turns = (entry for entry in entries if isinstance(entry, TurnEntry))
    return {id(turn.response): replace(turn, calls=tuple(map(with_late_results, turn.calls))) for turn in turns}


# -- pairs -------------------------------------------------------------------------------------------------------------


def _pair_recordings(
    baseline: Sequence[Recording], candidate: Sequence[Recording]
) -> list[tuple[Recording | None, Recording | None]]:
    """In the baseline's order, those of the candidate alone at the end. Trials of one task are paired in order."""
    pairing = pair_sessions(baseline, candidate)
    counterparts: dict[int, Recording] = {}
    extra = list(pairing.extra)
    for group in pairing.groups:
        counterparts |= {id(b): c for b, c in zip(group.baseline, group.candidate, strict=False)}
        extra += group.candidate[len(group.baseline) :]
    return [*((b, counterparts.get(id(b))) for b in baseline if b.steps), *((None, c) for c in extra)]


def _pair_session(
    b: Recording | None, c: Recording | None, before: _ComparedTrace, after: _ComparedTrace, lexicon: Lexicon
) -> SessionPair:
    steps: Iterable[tuple[Step | None, Step | None]]
    if b is not None and c is not None:
        steps = Comparison(b, c, lexicon).sides
    else:
        steps = [(step, None) for step in b.steps] if b else [(None, step) for step in c.steps] if c else []
    pairs = tuple(_pair_turn(before.entry(left), after.entry(right)) for left, right in steps)
    return SessionPair(baseline=b.session if b else None, candidate=c.session if c else None, pairs=pairs)


def _pair_turn(b: TurnEntry | None, c: TurnEntry | None) -> PairEntry:
    calls = pair_calls(b, c)
    return PairEntry(
        baseline=b,
        candidate=c,
        differences=differences(b, c, calls),
        calls=calls,
        other_input=b is not None and c is not None and b.input.messages != c.input.messages,
    )


def pair_calls(b: TurnEntry | None, c: TurnEntry | None) -> tuple[CallPair, ...]:
    """Calls aligned by their names; where names differ, by their places."""
    left = [called.call.name for called in b.calls] if b else []
    right = [called.call.name for called in c.calls] if c else []
    pairs: list[CallPair] = []
    for step in Levenshtein.opcodes(left, right):
        rows = range(step.src_start, step.src_end)
        columns = range(step.dest_start, step.dest_end)
        pairs += zip(rows, columns, strict=False)
        shared = min(len(rows), len(columns))
        pairs += [(row, None) for row in rows[shared:]] + [(None, column) for column in columns[shared:]]
    return tuple(pairs)


def _mark_first(sessions: list[SessionPair]) -> list[SessionPair]:
    """Set `first` on the first pair that differs."""
    for at, session in enumerate(sessions):
        for place, pair in enumerate(session.pairs):
            if pair.differences:
                pairs = (*session.pairs[:place], replace(pair, first=True), *session.pairs[place + 1 :])
                return [*sessions[:at], replace(session, pairs=pairs), *sessions[at + 1 :]]
    return sessions


def _select(sessions: Sequence[SessionPair], selection: Selection) -> tuple[SessionPair, ...]:
    if selection.is_all:
        return tuple(sessions)
    selected = []
    for session in sessions:
        pairs = tuple(replace(pair, whole=selection.whole) for pair in session.pairs if _takes(selection, pair))
        if pairs:
            selected.append(replace(session, pairs=pairs))
    return tuple(selected)


def _takes(selection: Selection, pair: PairEntry) -> bool:
    """By the pair's own index, and by a session, an agent or a tool of either side."""
    return selection.takes_index(pair.turn) and any(
        selection.takes_origin(entry.origin)
        and (not selection.tools or any(selection.takes_tool(called.call) for called in entry.calls))
        for entry in (pair.baseline, pair.candidate)
        if entry is not None
    )


# -- differences -------------------------------------------------------------------------------------------------------


def differences(b: TurnEntry | None, c: TurnEntry | None, pairs: tuple[CallPair, ...]) -> tuple[Difference, ...]:
    """Calls first, then results, the stop reason and the text."""
    if b is None or c is None:
        one = b or c
        names = ", ".join(called.call.name for called in one.calls) if one else ""
        turn = f"a turn that calls {names}" if names else "a turn"
        what = f"{turn} {'is missing' if c is None else 'was added'}"
        return (Difference(aspect="turn", what=what),)
    found: list[Difference] = []
    results: list[Difference] = []
    for place, (left, right) in enumerate(pairs):
        before = None if left is None else b.calls[left]
        after = None if right is None else c.calls[right]
        found += _call_differences(place, before, after)
        if before is not None and after is not None and before.call.name == after.call.name:
            results += _result_differences(place, before, after)
    found += results
    stops = b.response.stop_reason, c.response.stop_reason
    if None not in stops and stops[0] != stops[1]:
        found.append(Difference(aspect="stop", what="stop reason", baseline=stops[0], candidate=stops[1]))
    texts = b.response.text, c.response.text
    if None not in texts and texts[0] != texts[1]:
        found.append(Difference(aspect="text", what="text", baseline=texts[0], candidate=texts[1]))
    return tuple(found)


def _call_differences(
    place: int, before: CallWithResults | None, after: CallWithResults | None
) -> Iterator[Difference]:
    if after is None:
        assert before is not None
        what = f"tool call {before.call.name} is no longer made"
        yield Difference(aspect="call", what=what, baseline=arguments(before.call), call=place)
    elif before is None:
        what = f"tool call {after.call.name} is new"
        yield Difference(aspect="call", what=what, candidate=arguments(after.call), call=place)
    elif before.call.name != after.call.name:
        names = {"baseline": before.call.name, "candidate": after.call.name}
        yield Difference(aspect="call", what="tool call", call=place, **names)
    else:
        yield from _argument_differences(place, before, after)


def _argument_differences(place: int, before: CallWithResults, after: CallWithResults) -> Iterator[Difference]:
    left, right = arguments(before.call), arguments(after.call)
    if left is None or right is None or _is_same(left, right):
        return
    name = f"tool call {before.call.name}"
    if not (isinstance(left, dict) and isinstance(right, dict)):
        yield Difference(aspect="arguments", what=name, baseline=left, candidate=right, call=place)
        return
    for key in {**left, **right}:
        if key not in left:
            yield Difference(aspect="arguments", what=f"{name} {key} is new", candidate=right[key], call=place)
        elif key not in right:
            yield Difference(aspect="arguments", what=f"{name} {key} is missing", baseline=left[key], call=place)
        elif not _is_same(left[key], right[key]):
            sides = {"baseline": left[key], "candidate": right[key]}
            yield Difference(aspect="arguments", what=f"{name} {key}", call=place, **sides)


def _result_differences(place: int, before: CallWithResults, after: CallWithResults) -> Iterator[Difference]:
    if not before.results or not after.results:
        return
    left, right = before.results[-1], after.results[-1]
    what = f"result of {before.call.name}"
    if None not in (left.is_error, right.is_error) and left.is_error != right.is_error:
        what += " is an error" if right.is_error else " is no longer an error"
    elif left.content is None or right.content is None or _is_same(left.content, right.content):
        return
    yield Difference(aspect="result", what=what, baseline=left.content, candidate=right.content, call=place)


def _is_same(left: Any, right: Any) -> bool:
    return canonical_json(left) == canonical_json(right)
