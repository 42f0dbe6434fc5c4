"""The readers on real traces, and on real files that are not ours to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bylaw.errors import InputError
from bylaw.traces import find_traces, load_trace, open_trace
from bylaw.traces.assembly.content import WRITTEN_CALL, is_written_call
from bylaw.traces.export import write_trace

pytestmark = pytest.mark.corpus
MALFORMED = 6
"""lines of Claude Code's sample of edge cases that no reader can make sense of"""


def test_every_agentlog_is_read_and_its_ids_match(data: Path) -> None:
    names = find_traces([str(data / "formats/agentlog")])
    assert len(names) == 10
    sessions = []
    for name in names:
        trace = load_trace(name, verify_ids=True)
        assert (trace.format, trace.complete, trace.problems, trace.skipped) == ("agentlog", True, (), 0)
        assert len(trace.turns) > 0
        sessions.append(len(trace.sessions))
        assert all(turn.request is not None for turn in trace.turns)
    assert sessions == [
        3,
        3,
        3,
        3,
        2,
        2,
        2,
        1,
        1,
        1,
    ]  # by requests, whatever the parents and tags


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
    # one model wrote a call as JSON, and another 20 times one in Python, which nobody ran; a harness answered calls of
    # a tool `None`, which are not recorded
    written = [problem for problem in stream.problems if problem.message == WRITTEN_CALL]
    others = [problem.code for problem in stream.problems if problem not in written]
    assert (len(written), others, stream.skipped) == (21, ["result-without-call"], 0)


@pytest.mark.parametrize(
    "pattern",
    [
        "sopbench/tools.json",
        "sopbench/prompts.json.gz",
    ],
)
def test_what_is_not_ours_is_refused(data: Path, pattern: str) -> None:
    names = find_traces([str(data / pattern)])
    assert names
    for name in names:
        with pytest.raises(InputError) as error:
            open_trace(name)
        assert [problem.code for problem in error.value.diagnostics] == ["unknown-format"], name


@pytest.mark.parametrize(
    ("pattern", "format", "counts"),
    [
        ("agentdojo-gt/banking/user_task_0.json", "agentdojo", (3, 2, 2)),
        ("formats/claude-code/ccl_representative_messages.jsonl", "claude-code", (5, 2, 2)),
        ("formats/claude-code/sample_session.jsonl", "claude-code", (3, 2, 2)),
        ("formats/inspect/2025*.json", "inspect", (3, 0, 0)),
        ("formats/inspect/log_formats.eval", "inspect", (1, 0, 0)),
        ("formats/inspect/log_read_sample.json", "inspect", (1, 0, 0)),
        ("formats/inspect/log_tool_call_error.json", "inspect", (0, 0, 11)),
        ("formats/mcp/baseline.mcp.jsonl", "mcp", (2, 2, 2)),
        ("formats/mcp/candidate.mcp.jsonl", "mcp", (1, 1, 1)),
        ("formats/openinference/0035*.json", "openinference", (4, 1, 1)),
        ("formats/openinference/7512*.json", "openinference", (4, 1, 1)),
        ("formats/openinference/f75d*.json", "openinference", (4, 1, 1)),
    ],
)
def test_what_others_record(
    data: Path, tmp_path: Path, pattern: str, format: str, counts: tuple[int, int, int]
) -> None:
    (name,) = find_traces([str(data / pattern)])
    trace = load_trace(name)
    kinds = [event.kind for event in trace.events]
    codes = ["result-without-call"] if counts[2] > counts[1] else []
    assert (trace.format, [problem.code for problem in trace.problems], trace.skipped) == (format, codes, 0)
    assert tuple(map(kinds.count, ("response", "tool_call", "tool_result"))) == counts
    write_trace(trace, tmp_path / "t.jsonl")
    assert load_trace(tmp_path / "t.jsonl") == trace


def test_every_run_of_agentdojo(data: Path) -> None:
    traces = [load_trace(name) for name in find_traces([str(data / "agentdojo-gt")])]
    assert {(trace.format, trace.problems) for trace in traces} == {("agentdojo", ())}
    assert len(traces) == 51
    results = [event for trace in traces for event in trace.events if event.kind == "tool_result"]
    assert all(result.call is not None for result in results)  # type: ignore[attr-defined]


def test_malformed_lines_of_claude_code_are_all_reported(data: Path) -> None:
    name = data / "formats/claude-code/ccl_edge_cases.jsonl"
    with pytest.raises(InputError) as error:
        load_trace(name)
    found = [(problem.code, problem.span and problem.span.line) for problem in error.value.diagnostics]
    trace = load_trace(name, skip_bad=True)
    assert (len(found), trace.skipped, len(trace.turns)) == (MALFORMED, MALFORMED, 4)
    assert found[:2] == [("wrong-type", 10), ("wrong-type", 11)]


def test_no_reply_that_is_ordinary_text_is_taken_for_a_written_call(data: Path) -> None:
    """The 27,658 answers of SOPBench are in a test of their own, above."""
    names = find_traces([str(data / "formats"), str(data / "tau-airline"), str(data / "agentdojo-gt")])
    texts = list[str | None]()
    refused = list[str]()
    for name in names:
        try:
            texts += [turn.response.text for turn in load_trace(name).turns if not turn.response.tool_calls]
        except InputError:  # lists of the files, and one that is malformed on purpose
            refused.append(Path(name).name)
    for line in (data / "dialogues/innocent.jsonl").read_text().splitlines():
        texts += [message["content"] for message in json.loads(line)["messages"]]
    for path in (data / "prompts").glob("*.txt"):
        texts += path.read_text().split("\n\n")
    assert sorted(refused) == ["EXPECTED.json", "SOURCES.json", "ccl_edge_cases.jsonl"]
    assert sum(bool(text and text.strip()) for text in texts) > 1900
    marked = [text for text in texts if text and is_written_call(text)]
    # one of the prompts shows its model how to write calls
    assert all(text.strip().startswith("Action:\n{\n  ") and '"name": ' in text for text in marked), marked
    assert len(marked) == 6
