"""Events become turns: what belongs together, what is repeated, who stands below whom."""

from __future__ import annotations

from typing import Any

import pytest

import bylaw
from bylaw.inspect.model import EventEntry, RequestEntry, Selection, SessionEntry, TurnEntry
from bylaw.inspect.timeline import Timeline
from bylaw.model.events import Annotation, Origin, Request, Response, ToolCall, ToolResult, Trace
from tests.inspect.support import entries, everything, turns
from tests.support.build import trace


def _story(shown: list[Any]) -> list[str]:
    reported = []
    for entry in shown:
        if isinstance(entry, SessionEntry):
            reported.append(f"session {entry.session}" + (" again" if entry.continued else ""))
        elif isinstance(entry, TurnEntry):
            reported.append(f"turn {entry.turn}")
        else:
            reported.append("request" if isinstance(entry, RequestEntry) else entry.event.kind)
    return reported


def test_entries_in_their_order() -> None:
    assert _story(entries(everything())) == [
        *("session ticket-7", "turn 0", "turn 1", "annotation", "tool_result", "turn 2", "message", "session_end"),
        *("session ticket-8", "turn 3", "request"),
    ]


def test_a_result_stands_with_its_call_and_a_late_one_where_it_came() -> None:
    first, _, third, _ = turns(everything())
    assert [[result.content for result in called.results] for called in first.calls] == [['{"amount": 45.0}'], []]
    assert [result.is_error for result in third.calls[0].results] == [True]
    (late,) = [e.event for e in entries(everything()) if isinstance(e, EventEntry) and isinstance(e.event, ToolResult)]
    assert (late.call_id, late.turn) == ("c2", 0)


def test_parallel_calls_are_one_group() -> None:
    first, _, third, _ = turns(everything())
    assert [called.parallel for called in first.calls] == [0, 0]
    assert [called.parallel for called in third.calls] == [None]


def test_agents_stand_below_their_parents() -> None:
    assert [entry.depth for entry in turns(everything())] == [0, 1, 0, 0]


def test_only_new_messages_are_shown() -> None:
    first, _, third, _ = turns(everything())
    assert [message.role for message in first.input.messages] == ["system", "user"]
    assert third.input.messages == ()
    assert third.input.repeated == 5


def test_times_count_from_the_start_of_the_session() -> None:
    assert [entry.since for entry in turns(everything())] == [0, 4, 75, None]


def test_totals_cover_the_whole_trace() -> None:
    for asked in ({}, {"turns": [(1, 1)]}, {"tools": ["nothing"]}):
        timeline = Timeline(everything(), Selection(**asked))  # type: ignore[arg-type]
        for _ in timeline:
            pass
        totals = timeline.totals
        assert (totals.turns, totals.sessions, totals.calls, totals.failed) == (4, 2, 3, 1), asked
        assert totals.agents == {"support": 2, "researcher": 1}
        assert (totals.input_tokens.total, totals.input_tokens.turns) == (822, 2)
        assert (totals.output_tokens.total, totals.output_tokens.turns) == (40, 1)
        assert totals.cost.turns == 1
        assert totals.last is not None and totals.first is not None and totals.last - totals.first == 75


def test_unknown_values_are_not_counted_as_zero() -> None:
    timeline = Timeline(trace([{"text": "hi"}]))
    (entry,) = (e for e in timeline if isinstance(e, TurnEntry))
    assert (entry.cost, entry.since) == (None, None)
    assert (timeline.totals.cost.turns, timeline.totals.input_tokens.turns, timeline.totals.first) == (0, 0, None)


def test_sessions_that_interleave_are_headed_again() -> None:
    shown = entries(trace([{"session": "a"}, {"session": "b"}, {"session": "a"}]))
    assert _story(shown) == ["session a", "turn 0", "session b", "turn 1", "session a again", "turn 2"]


def test_annotations_between_a_call_and_its_result_stay_with_the_turn() -> None:
    origin = Origin("s")
    call = ToolCall(origin=origin, turn=0, name="rm", call_id="c")
    asked = Annotation(origin=origin, label="approval")
    result = ToolResult(origin=origin, turn=0, call_id="c", content="gone", call=call)
    after = Annotation(origin=origin, label="saved")
    response = Response(origin=origin, turn=0, tool_calls=(call,))
    made = Trace(name="t", events=(response, call, asked, result, after))
    assert _story(entries(made)) == ["session s", "turn 0", "annotation"]
    (turn,) = turns(made)
    assert turn.beside == (asked,)
    assert turn.calls[0].results == (result,)


def test_the_same_from_python() -> None:
    timeline = bylaw.timeline(everything(), turns=[0, (2, 3)], agents=["support"])
    assert [entry.turn for entry in timeline if isinstance(entry, TurnEntry)] == [0, 2]
    assert timeline.totals.turns == 4
    with pytest.raises(TypeError, match=r"tools='refund': expected a list of names"):
        bylaw.timeline(everything(), tools="refund")


# -- what a request repeats --------------------------------------------------------------------------------------------


def _asked(*requests: list[Any], said: str | None = "ok") -> Trace:
    events: list[Any] = []
    for turn, messages in enumerate(requests):
        request = Request(origin=Origin("s"), turn=turn, held_messages=messages)
        events += [request, Response(origin=Origin("s"), turn=turn, request=request, text=said)]
    return Trace(name="t", events=tuple(events))


def _heard(made: Trace) -> list[list[str]]:
    return [
        [f"{m.role}: {part.text}" for m in entry.input.messages for part in m.parts if part.kind == "text"]
        for entry in turns(made)
    ]


def _m(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_an_answer_that_comes_back_changed_is_shown() -> None:
    before = [_m("user", "hi")]
    same = _asked(before, [*before, _m("assistant", "ok"), _m("user", "go")])
    changed = _asked(before, [*before, _m("assistant", "no"), _m("user", "go")])
    assert _heard(same)[1] == ["user: go"]
    assert _heard(changed)[1] == ["assistant: no", "user: go"]


def test_marks_that_recorders_move_about_do_not_make_a_message_new() -> None:
    plain = _m("user", [{"type": "text", "text": "hi"}])
    marked = _m("user", [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])
    assert _heard(_asked([marked], [plain, _m("assistant", "ok"), _m("user", "go")]))[1] == ["user: go"]


@pytest.mark.parametrize("gone", [1, 3])
def test_a_sliding_window_of_messages_is_not_shown_again(gone: int) -> None:
    system = _m("system", "be kind")
    before = [system, *(_m("user", f"m{i}") for i in range(6))]
    now = [system, *before[1 + gone :], _m("assistant", "ok"), _m("user", "go")]
    made = _asked(before, now)
    assert _heard(made)[1] == ["user: go"]


def test_a_request_that_starts_afresh_is_shown_whole() -> None:
    made = _asked([_m("user", "one"), _m("user", "two")], [_m("user", "three")])
    assert _heard(made)[1] == ["user: three"]
    assert turns(made)[1].input.dropped == 0


def test_results_without_an_event_are_shown() -> None:
    before = [_m("user", "hi")]
    reported = {"role": "tool", "tool_call_id": "c9", "content": "found"}
    made = _asked(before, [*before, _m("assistant", "ok"), reported])
    (message,) = turns(made)[1].input.messages
    assert [(part.kind, part.call_id, part.value) for part in message.parts] == [("result", "c9", "found")]


def test_only_the_latest_runs_that_interleave_are_remembered() -> None:
    from bylaw.inspect.messages import MOST_RUNS, Histories

    histories = Histories()
    for number in range(3 * MOST_RUNS):
        histories.add_request(Request(origin=Origin(str(number)), held_messages=[]))
    assert len(histories._runs) <= MOST_RUNS
