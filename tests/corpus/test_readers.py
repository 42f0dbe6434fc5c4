"""The readers on real traces, and on real files that are not ours to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bylaw.adapters.importers import find_traces, load_trace, open_trace, write_trace
from bylaw.errors import InputError

pytestmark = pytest.mark.corpus


def test_every_agentlog_is_read_and_its_ids_match(data: Path) -> None:
    names = find_traces([str(data / "formats/agentlog")])
    assert len(names) == 10
    for name in names:
        trace = load_trace(name, verify_ids=True)
        assert (trace.format, trace.complete, trace.problems, trace.skipped) == ("agentlog", True, (), 0)
        assert len(trace.turns) > 0
        assert len(trace.sessions) == 1
        assert all(turn.request is not None for turn in trace.turns)


def test_an_agentlog_in_full(data: Path) -> None:
    trace = load_trace(data / "formats/agentlog/demo/baseline.agentlog")
    kinds = [event.kind for event in trace.events if event.kind != "session_start"]
    assert kinds == ["request", "response", "tool_call", "tool_result", *["request", "response"] * 2]
    assert [call.call_id for turn in trace.turns for call in turn.tool_calls] == ["toolu_01"]


def test_tau_bench(data: Path, tmp_path: Path) -> None:
    trace = load_trace(data / "tau-airline/gpt-4o-airline.json.gz")
    assert (trace.format, len(trace.sessions), len(trace.turns)) == ("tau", 200, 2454)
    assert trace.sessions[:2] == ("task 0 trial 0", "task 1 trial 0")
    assert sum(event.kind == "tool_call" for event in trace.events) == 1164
    assert all(event.call_id for event in trace.events if event.kind == "tool_result")  # type: ignore[attr-defined]
    write_trace(trace, tmp_path / "t.jsonl.zst")
    assert load_trace(tmp_path / "t.jsonl.zst") == trace


def test_sopbench(data: Path) -> None:
    sessions: set[str] = set()
    turns = answered = 0
    for event in (stream := open_trace(data / "sopbench/events.jsonl.gz")):
        sessions.add(event.origin.session)
        turns += event.kind == "response"
        answered += event.kind == "tool_result" and event.call_id is not None  # type: ignore[attr-defined]
    assert (stream.format, len(sessions), turns, answered) == ("events", 5584, 27658, 18342)
    assert (stream.problems, stream.skipped) == ([], 0)


@pytest.mark.parametrize(
    "pattern",
    [
        "agentdojo-gt/**/*.json",
        "formats/claude-code/*.jsonl",
        "formats/inspect/*.json",
        "formats/mcp/*.jsonl",
        "formats/openinference/*.json",
        "formats/swe-agent/*.traj",
        "sopbench/tools.json",
        "sopbench/prompts.json.gz",
    ],
)
def test_what_is_not_ours_is_refused(data: Path, pattern: str) -> None:
    names = find_traces([str(data / pattern)])
    for name in names:
        with pytest.raises(InputError) as error:
            open_trace(name)
        assert [problem.code for problem in error.value.diagnostics] == ["unknown-format"], name
