"""Trajectories of mini-SWE-agent and OpenHands: how commands ended, and sessions that are folders."""

from __future__ import annotations

import json
from typing import Any

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
