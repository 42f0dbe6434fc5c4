"""What is written is read back, whatever it is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.model.events import Event, Response, Trace
from bylaw.traces import load_trace, open_trace, read_trace
from bylaw.traces.export import TraceWriter, write_trace
from tests import strategies
from tests.unit.readers.shapes import MORE, call, lines, request, response, result, use


@given(trace=strategies.traces, suffix=st.sampled_from(["", ".gz", ".zst"]))
def test_a_trace_survives_writing_and_reading(trace: Trace, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"t.jsonl{suffix}")
        write_trace(trace, path)
        back = load_trace(path)
    assert back == trace
    for event in back.events:
        if isinstance(event, Response):
            assert all(one in back.events for one in event.tool_calls)


@given(parts=st.lists(strategies.events(), min_size=1, max_size=3), data=st.data())
def test_events_in_any_order_survive(parts: list[tuple[Event, ...]], data: st.DataObject) -> None:
    """Not as readers make them: links to events far away, or to none that is written."""
    mixed = data.draw(st.permutations([event for part in parts for event in part]))
    trace = Trace(name="t", format="bylaw", events=strategies.linked(mixed))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.jsonl")
        write_trace(trace, path)
        assert load_trace(path) == trace


def test_a_trace_of_another_format_survives(tmp_path: Path) -> None:
    data = lines(request(), response("a", use("pay", "c")), call("pay", "c"), result("c"), request(MORE), response("b"))
    trace = load_trace(data.encode())
    write_trace(trace, tmp_path / "t.jsonl")
    assert load_trace(tmp_path / "t.jsonl") == trace
    write_trace(read_trace(data.encode()), tmp_path / "s.jsonl")
    assert load_trace(tmp_path / "s.jsonl") == trace
    again = load_trace(tmp_path / "t.jsonl")
    assert again.turns[1].request is again.events[4]


def test_sources_inside_the_very_file_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(load_trace(lines(request(), response("a")).encode()), path)
    hand = load_trace(path)
    own = tuple(event for event in open_trace(path))
    assert own == hand.events
    text = (
        path.read_text()
        .replace(',"source":{"file":"trace","line":1}', "")
        .replace(',"source":{"file":"trace","line":2}', "")
    )
    path.write_text(text)
    trace = load_trace(path)
    assert [event.source and event.source.line for event in trace.events] == [2, 3]
    write_trace(trace, path)
    assert path.read_text() == text
    assert '"source"' not in text


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_writer_that_is_killed_leaves_an_incomplete_trace(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.jsonl{suffix}"
    events = load_trace(lines(request(), response("a", use("pay", "c")), request(MORE), response("b")).encode()).events
    with TraceWriter(path) as writer:
        writer.write_all(events)
    whole = load_trace(path)
    assert (whole.complete, whole.format, whole.events) == (True, "bylaw", events)

    writer = TraceWriter(path)
    writer.write_all(events[:4])
    writer.flush()
    if not suffix:  # killed: nothing after this is written
        assert (load_trace(path).complete, load_trace(path).events) == (False, events[:4])
    writer.close(complete=False)
    assert load_trace(path).complete is False


def test_an_exception_leaves_an_incomplete_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with pytest.raises(RuntimeError), TraceWriter(path) as writer:
        writer.write_all(load_trace(lines(request(), response("a")).encode()).events)
        raise RuntimeError
    assert load_trace(path).complete is False
    assert len(load_trace(path).turns) == 1


def test_a_flush_in_the_middle_of_a_turn_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    trace = load_trace(lines(request(), response(use("a", "1"), use("b", "2"), use("c", "3"))).encode())
    with TraceWriter(path) as writer:
        for event in trace.events:
            writer.write(event)
            writer.flush()
    assert load_trace(path).events == trace.events
