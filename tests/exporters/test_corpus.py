"""Real traces, in every format and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bylaw.model.events import Trace
from bylaw.traces import find_traces, load_trace, open_trace
from bylaw.traces.export import EXPORTS, export_trace

pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def traces(data: Path) -> list[Trace]:
    folders = ("formats/agentlog", "formats/claude-code", "formats/inspect", "formats/mcp", "formats/openinference")
    names = find_traces([str(data / folder) for folder in (*folders, "agentdojo-gt", "tau-airline/*.gz")])
    return [load_trace(name, skip_bad=True) for name in names]


@pytest.mark.parametrize("format", EXPORTS)
def test_every_event_of_every_file_survives_a_round_trip(traces: list[Trace], tmp_path: Path, format: str) -> None:
    converted = 0
    for number, trace in enumerate(traces):
        if export_trace(trace, tmp_path / f"{number}.gz", to=format).events:
            back = load_trace(tmp_path / f"{number}.gz")
            assert back.events == trace.events, trace.name
            assert (back.notes, back.problems, back.skipped) == (trace.notes, trace.problems, trace.skipped), trace.name
            converted += 1
    assert converted > 70


@pytest.mark.proof
@pytest.mark.parametrize("format", EXPORTS)
def test_a_large_one_streams_there_and_back(data: Path, tmp_path: Path, format: str) -> None:
    source = data / "sopbench/events.jsonl.gz"
    done = export_trace(open_trace(source), tmp_path / "t", to=format)
    assert (done.turns, done.sessions) == (27658, 5584)
    for event, back in zip(open_trace(source), open_trace(tmp_path / "t"), strict=True):
        assert back == event
