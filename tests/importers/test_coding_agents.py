"""Trajectories of mini-SWE-agent and OpenHands: how commands ended, and sessions that are folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bylaw.traces import find_traces, load_trace
from tests.importers.support import calls, read, results


def mini(*messages: Any) -> Any:
    start = [{"role": "system", "content": "s"}, {"role": "user", "content": "task"}]
    return read({"info": {}, "messages": [*start, *messages], "trajectory_format": "mini-swe-agent-1.1"})


def issued(id: str, command: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}


def test_mini_swe_agent_says_whether_a_command_failed() -> None:
    returned = [
        {"role": "tool", "tool_call_id": id, "content": "x", "extra": {"raw_output": "x", "returncode": code}}
        for id, code in (("c1", 0), ("c2", 1), ("c3", -1), ("c4", None))
    ]
    commands = [issued(id, id) for id in ("c1", "c2", "c3", "c4")]
    trace = mini({"role": "assistant", "content": "t", "tool_calls": commands}, *returned)
    assert [one.is_error for one in results(trace)] == [False, True, True, None]


def test_mini_swe_agent_with_items_of_the_responses_api() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}
    answer = {"object": "response", "model": "m", "output": [call], "extra": {"actions": [{"command": "ls"}]}}
    output = {"type": "function_call_output", "call_id": "c1", "output": "no", "extra": {"returncode": 2}}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "again"}]}
    trace = mini(answer, output, asked)
    assert [(one.name, one.arguments) for one in calls(trace)] == [("bash", {"command": "ls"})]
    assert [(one.content, one.is_error) for one in results(trace)] == [("no", True)]


# OpenHands


def sdk(number: int, kind: str, source: str = "agent", **rest: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "timestamp": f"2026-01-01T00:00:{number:02}", "source": source, "kind": kind, **rest}


def action(number: int, id: str, command: str) -> dict[str, Any]:
    call = {"id": id, "name": "terminal", "arguments": json.dumps({"command": command})}
    return sdk(number, "ActionEvent", tool_name="terminal", tool_call_id=id, tool_call=call, thought=[])


def observed(number: int, id: str, text: str) -> dict[str, Any]:
    seen = {"content": [{"type": "text", "text": text}], "is_error": False}
    return sdk(number, "ObservationEvent", "environment", tool_call_id=id, observation=seen)


def other_call(number: int, id: str, **rest: Any) -> dict[str, Any]:
    return sdk(number, "ACPToolCallEvent", tool_call_id=id, title="Run it", **rest)


EVENTS = [
    sdk(0, "ConversationStateUpdateEvent", "environment", key="execution_status", value="running"),
    sdk(1, "MessageEvent", "user", llm_message={"role": "user", "content": [{"type": "text", "text": "go"}]}),
    action(2, "c1", "ls"),
    observed(3, "c1", "a"),
    action(4, "c2", "rm"),
    observed(5, "c2", "b"),
]


def stored(folder: Path, events: list[Any], state: Any = None) -> Path:
    (folder / "events").mkdir(parents=True)
    for number, one in enumerate(events):
        if one is not None:
            (folder / "events" / f"event-{number:05}-0000000{number}.json").write_text(json.dumps(one))
    if state is not None:
        (folder / "base_state.json").write_text(json.dumps(state))
    return folder


@pytest.mark.parametrize("pattern", ["", "events", "events/*.json"])
def test_the_folder_of_a_session_is_one_trace(tmp_path: Path, pattern: str) -> None:
    state = {"id": "s1", "agent": {"llm": {"model": "m1"}}, "execution_status": "finished"}
    folder = stored(tmp_path / "one", EVENTS, state)
    (name,) = find_traces([os.path.join(folder, pattern)])
    trace = load_trace(name)
    assert (trace.format, trace.sessions, trace.complete, trace.notes) == (
        "openhands",
        ("s1",),
        True,
        ("1 request has no response",),
    )
    assert [(one.turn, one.arguments) for one in calls(trace)] == [(0, {"command": "ls"}), (1, {"command": "rm"})]
    assert [one.content for one in results(trace)] == [[{"type": "text", "text": "a"}], [{"type": "text", "text": "b"}]]
    assert {one.source.file for one in calls(trace) if one.source} == {
        str(folder / "events" / f"event-0000{number}-0000000{number}.json") for number in (2, 4)
    }


def test_all_events_may_be_named_and_sessions_stay_apart(tmp_path: Path) -> None:
    folders = [stored(tmp_path / name, EVENTS) for name in ("one", "two")]
    first = [str(folder / "events" / "event-00000-00000000.json") for folder in folders]
    assert find_traces([str(tmp_path)]) == first
    assert find_traces(sorted(map(str, (folders[0] / "events").iterdir()))) == first[:1]


def test_a_part_of_a_session_is_incomplete(tmp_path: Path) -> None:
    folder = stored(tmp_path / "one", EVENTS)
    (name,) = find_traces([str(folder / "events" / "event-00004-00000004.json")])
    trace = load_trace(name)
    assert ([one.arguments for one in calls(trace)], trace.complete) == ([{"command": "rm"}], False)
    assert trace.notes == (
        "this is only one event of a session: check the folder `events`, which is read as one session",
    )
    (name,) = find_traces([str(stored(tmp_path / "two", [EVENTS[1], None, *EVENTS[2:4]]))])
    trace = load_trace(name)
    assert (len(calls(trace)), trace.complete) == (1, False)
    assert "1 event of the session is missing: the numbers of the event files have a gap" in trace.notes
    (name,) = find_traces([str(stored(tmp_path / "three", EVENTS, {"id": "s", "execution_status": "running"}))])
    assert load_trace(name).complete is False


def test_an_event_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps(action(9, "c9", "steal")))
    folder = stored(tmp_path / "one", EVENTS)
    (folder / "events" / "event-00006-00000006.json").symlink_to(outside)
    assert len(calls(load_trace(folder / "events" / "event-00000-00000000.json"))) == 2


def test_calls_of_another_agent_are_read() -> None:
    trace = read(
        EVENTS[1],
        other_call(2, "a1", tool_kind="execute", status="in_progress", raw_input={"command": "rm"}),
        other_call(3, "a1", tool_kind="execute", status="failed", raw_output="no", is_error=True),
        other_call(4, "a1", tool_kind="execute", status="failed", raw_output="no", is_error=True),
        other_call(5, "a2", tool_kind="other", status="completed", raw_input={"n": 1}, content=[{"type": "x"}]),
    )
    assert [(one.name, one.arguments) for one in calls(trace)] == [("execute", {"command": "rm"}), ("Run it", {"n": 1})]
    assert [(one.content, one.is_error) for one in results(trace)] == [("no", True), ([{"type": "x"}], None)]
    assert trace.problems == ()
