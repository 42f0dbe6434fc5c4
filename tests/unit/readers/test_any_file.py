"""Laws that hold for every .agentlog, however its records are mixed up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.model.events import Request, Response, ToolCall, ToolResult, Trace
from bylaw.traces import load_trace
from bylaw.traces.records import files as compression
from tests.unit.readers.shapes import HI, MORE, call, lines, record, request, response, result, use

ids = st.none() | st.sampled_from(["i1", "i2", "i3", "i4"])
call_ids = st.none() | st.sampled_from(["c1", "c2", "c3"])
names = st.sampled_from(["look_up", "refund"])
links = st.fixed_dictionaries({"id": ids, "parent": ids})
metas = st.sampled_from([{}, {}, {"session_id": "a"}, {"session_id": "b"}, {"agent": "x"}])
blocks = st.lists(
    st.builds(use, names, call_ids, st.sampled_from([{}, {"n": 1}, "text"])) | st.just("words"), max_size=3
)


def _linked(make: Any, *parts: Any) -> st.SearchStrategy[dict[str, Any]]:
    def build(given: tuple[Any, ...], links: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = make(*given, **links, **meta)
        return made

    return st.builds(build, st.tuples(*parts), links, metas)


records = st.one_of(
    _linked(request, st.sampled_from([HI, MORE, [], None])),
    _linked(lambda content, **rest: response(*content, **rest), blocks),
    _linked(call, names, call_ids),
    _linked(result, call_ids),
    _linked(lambda **rest: record("metadata", {"n": 1}, **rest)),
    _linked(lambda **rest: record("error", {"code": 5}, **rest)),
)
files = st.lists(records, max_size=25)


def read(data: bytes, chunk: int) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "CHUNK", chunk)
        return load_trace(data, format="agentlog")


@given(files, st.sampled_from([7, 100, 1000]))
def test_how_a_file_is_read_in_pieces_changes_nothing(found: list[dict[str, Any]], chunk: int) -> None:
    data = lines(*found).encode()
    assert read(data, chunk) == read(data, 1 << 16)


@given(files)
def test_nothing_is_lost_and_everything_is_linked(found: list[dict[str, Any]]) -> None:
    trace = load_trace(lines(*found).encode(), format="agentlog")
    kinds = [one["kind"] for one in found]
    responses = [event for event in trace.events if isinstance(event, Response)]
    assert [r.turn for r in responses] == list(range(len(responses)))
    recorded = [r for r in responses if r.content is not None]
    assert len(recorded) == kinds.count("chat_response")
    assert sum(isinstance(event, Request) for event in trace.events) == kinds.count("chat_request")
    assert sum(isinstance(event, ToolResult) for event in trace.events) == kinds.count("tool_result")
    assert sum(event.kind == "annotation" and event.label == "error" for event in trace.events) == kinds.count("error")  # type: ignore[attr-defined]
    reported = [event for event in trace.events if isinstance(event, ToolCall)]
    for event in responses:
        assert all(any(one is call for call in reported) for one in event.tool_calls)
        assert len({one.call_id for one in event.tool_calls}) == len(event.tool_calls)
        if event.request is not None:
            assert any(event.request is one for one in trace.events)
            assert event.request.turn == event.turn
            assert event.request.origin.session == event.origin.session
    asked = {one["payload"]["tool_name"] for one in found if one["kind"] == "tool_call"}
    if all(problem.code != "disagreeing-call" for problem in trace.problems):
        assert asked <= {one.name for one in reported}


@given(files)
def test_the_events_of_a_turn_are_in_order(found: list[dict[str, Any]]) -> None:
    """A request, its response, and then calls and results as they were recorded, each result after its call."""
    rank = {"request": 0, "response": 1, "tool_call": 2, "tool_result": 2}
    trace = load_trace(lines(*found).encode(), format="agentlog")
    answered = {id(e.request) for e in trace.events if isinstance(e, Response)}
    late = {id(e) for e in trace.events if isinstance(e, ToolCall)} - {
        id(one) for e in trace.events if isinstance(e, Response) for one in e.tool_calls
    }
    for turn in range(len(trace.turns)):
        own = [e for e in trace.events if e.turn == turn and e.kind in rank and id(e) not in late]
        own = [e for e in own if not isinstance(e, Request) or id(e) in answered]
        ranks = [rank[e.kind] for e in own]
        assert ranks == sorted(ranks)
        ran = [e for e in own if isinstance(e, ToolCall | ToolResult)]
        lines_of = [e.source.line for e in ran if e.source and found[e.source.line - 1]["kind"] != "chat_response"]
        assert lines_of == sorted(lines_of)
        for place, event in enumerate(ran):
            if isinstance(event, ToolResult) and event.call is not None and id(event.call) not in late:
                assert any(one is event.call for one in ran[:place])
