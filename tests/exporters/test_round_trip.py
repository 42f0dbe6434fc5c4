"""What is written in any format is read back as it was: every event, and all that is said of the trace."""

from __future__ import annotations

import gzip
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from bylaw.model.events import Event, Origin, Response, ToolCall, Trace
from bylaw.traces import load_trace, open_trace
from bylaw.traces.export import EXPORTS, export_trace
from bylaw.traces.export import otlp as runs
from bylaw.traces.export import otlp as writer
from tests import strategies
from tests.exporters.support import RECORDED, refunds
from tests.fuzz.foreign import archive_seed, foreign_seeds
from tests.importers.support import export, lines
from tests.importers.test_atif import RUN as ATIF
from tests.importers.test_vercel import STEPS

FORMATS = list(EXPORTS)
OTHERS = [format for format in FORMATS if format != "bylaw"]
SEEDS = [lines(*records) for records in foreign_seeds()] + [archive_seed()]


def there_and_back(trace: Trace, format: str, suffix: str = "") -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"t{suffix}")
        done = export_trace(trace, path, to=format)
        assert (done.events, done.sessions) == (len(trace.events), len(trace.sessions))
        return load_trace(path)


def said(trace: Trace) -> tuple[object, ...]:
    return trace.events, trace.header, trace.complete, trace.notes, trace.problems, trace.skipped


@pytest.mark.parametrize("format", FORMATS)
@given(trace=strategies.traces.filter(lambda trace: bool(trace.events)), suffix=st.sampled_from(["", ".gz", ".zst"]))
def test_every_event_survives_a_round_trip(format: str, trace: Trace, suffix: str) -> None:
    assert said(there_and_back(trace, format, suffix)) == said(trace)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_name_of_a_trace_survives_a_round_trip(format: str, suffix: str, tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}{suffix}" for name in ("a", "b"))
    export_trace(refunds(), first, to=format)
    stream = open_trace(first)
    assert (stream.name, load_trace(first).name) == ("refunds", "refunds"), "known before it is read"
    export_trace(load_trace(first, format=format), second, to=format)
    if format != "bylaw":
        exported = [load_trace(path, format=format) for path in (first, second)]
        assert exported[0] == exported[1]
    foreign = {"atif": [ATIF], "otlp": [export(*STEPS)], "bylaw": [{"bylaw": "trace/1"}, *RECORDED[1:]]}[format]
    first.write_bytes(lines(*foreign) if not suffix else gzip.compress(lines(*foreign)))
    assert load_trace(first).name == str(first)


@pytest.mark.parametrize("format", OTHERS)
@given(parts=st.lists(strategies.events(), min_size=1, max_size=3), data=st.data())
def test_events_in_any_order_survive_a_round_trip(
    format: str, parts: list[tuple[Event, ...]], data: st.DataObject
) -> None:
    """Not as readers make them: links to events far away, or to none that is written."""
    mixed = data.draw(st.permutations([event for part in parts for event in part]))
    trace = Trace(name="t", events=strategies.linked(mixed))
    assume(mixed)
    assert there_and_back(trace, format).events == trace.events


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_event_twice_is_two_events(format: str) -> None:
    events = [event for event in refunds().events for _ in range(2)]
    assert there_and_back(Trace(name="t", events=tuple(events)), format).events == tuple(events)


@pytest.mark.parametrize("format", FORMATS)
def test_a_call_that_is_alike_but_not_the_same_is_another(format: str) -> None:
    call = ToolCall(origin=Origin("s"), turn=0, name="f", call_id="c", arguments={"a": True})
    alike = replace(call, arguments={"a": 1})
    response = Response(origin=Origin("s"), turn=0, tool_calls=(call,))
    back = there_and_back(Trace(name="t", events=(response, alike)), format).events
    found = [one.arguments["a"] for event in back for one in getattr(event, "tool_calls", (event,))]
    assert [repr(argument) for argument in found] == ["True", "1"]


@given(parts=st.lists(strategies.events(), min_size=1, max_size=4))
def test_spans_that_wait_for_long_are_let_go_and_nothing_is_lost(parts: list[tuple[Event, ...]]) -> None:
    trace = Trace(name="t", events=strategies.linked(event for part in parts for event in part))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "MOST_BEHIND", 2)
        patch.setattr(runs, "MOST_RUNS", 1)
        assume(trace.events)
        assert there_and_back(trace, "otlp").events == trace.events


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("data", SEEDS, ids=range(len(SEEDS)))
def test_traces_of_other_tools_survive_a_round_trip(data: bytes, format: str) -> None:
    trace = load_trace(data)
    back = there_and_back(trace, format)
    assert said(back) == said(trace)
    assert back.format == (trace.format if format == "bylaw" else format)


@given(
    trace=strategies.traces.filter(lambda trace: bool(trace.events)),
    first=st.sampled_from(FORMATS),
    second=st.sampled_from(FORMATS),
)
def test_from_one_format_into_another(trace: Trace, first: str, second: str) -> None:
    """What was read and not looked at yet is written as well as what was."""
    assert said(there_and_back(there_and_back(trace, first), second)) == said(trace)


TURNS = [
    {"kind": "request", "session": f"s{number % 3}", "messages": [{"role": "user", "content": f"{number}"}]}
    if number % 2 == 0
    else {"kind": "response", "session": f"s{(number - 1) % 3}", "content": f"answer {number}"}
    for number in range(40)
]


@pytest.fixture
def trace() -> Trace:
    return load_trace(lines(*TURNS))


@pytest.mark.parametrize("format", OTHERS)
def test_the_order_of_lines_does_not_matter(trace: Trace, format: str, tmp_path: Path) -> None:
    """A collector may write spans in another order; sessions that took turns have a document each."""
    path = tmp_path / "t"
    export_trace(trace, path, to=format)
    head, *rest = path.read_bytes().splitlines(keepends=True)
    random.Random(7).shuffle(rest)
    path.write_bytes(b"".join([head, *rest]))
    assert load_trace(path).events == trace.events


@pytest.mark.parametrize("format", OTHERS)
def test_missing_lines_are_noted(trace: Trace, format: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    export_trace(trace, path, to=format)
    every = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(every[:1] + every[2:]))
    back = load_trace(path)
    assert len(back.events) < len(trace.events)
    assert not back.complete
    assert any("missing" in note for note in back.notes)


@pytest.mark.parametrize("format", OTHERS)
def test_a_trace_that_is_cut_short_says_so(trace: Trace, format: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    export_trace(trace, path, to=format)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert not load_trace(path).complete


def test_lines_that_are_there_twice_count_once(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.otlp.jsonl"
    export_trace(trace, path)
    every = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*every, every[3]]))
    back = load_trace(path)
    assert back.events == trace.events
    assert "2 lines are there twice, and counted once" in back.notes


@pytest.mark.parametrize("format", ["bylaw", "otlp"])
def test_memory_does_not_grow_with_the_trace(format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that nothing answers wait for their result, but not for ever."""
    monkeypatch.setattr(writer, "MOST_BEHIND", 32)
    peak(20, format, tmp_path)  # what is made only once is made now
    assert peak(750, format, tmp_path) < 1.5 * peak(300, format, tmp_path)


def peak(turns: int, format: str, folder: Path) -> int:
    """The most memory that writing so many turns took, and reading them back."""
    import tracemalloc

    source, path = folder / f"{turns}.jsonl", folder / f"{turns}.{format}"
    with source.open("wb") as out:
        for number in range(turns):
            session = {"session": f"s{number % 3}"}
            asks = {"kind": "request", **session, "messages": [{"role": "user", "content": "x" * 500}]}
            use = {"type": "tool_use", "id": f"c{number}", "name": "t", "input": {}}
            out.write(lines(asks, {"kind": "response", **session, "content": [use]}))
    tracemalloc.start()
    export_trace(open_trace(source), path, to=format)
    for _ in open_trace(path):
        pass
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found
