"""ATIF's trajectories."""

from __future__ import annotations

import json
from typing import Any

from bylaw.traces import load_trace
from tests.importers.support import calls, read, requests, responses, results, story


def step(n: int, source: str, message: Any, **rest: Any) -> dict[str, Any]:
    return {"step_id": n, "timestamp": f"2026-01-01T00:00:{n:02}Z", "source": source, "message": message, **rest}


def call(id: str, name: str = "refund") -> dict[str, Any]:
    return {"tool_call_id": id, "function_name": name, "arguments": {"order": 7}}


RUN = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s1",
    "trajectory_id": "t1",
    "agent": {"name": "support", "version": "1", "model_name": "m", "tool_definitions": [{"name": "refund"}]},
    "steps": [
        step(1, "system", "be kind"),
        step(2, "user", "refund order 7"),
        step(
            3,
            "agent",
            "",
            reasoning_content="hm",
            tool_calls=[call("c1"), call("c2", "ask")],
            observation={
                "results": [
                    {"source_call_id": "c1", "content": "done"},
                    {"source_call_id": "c2", "content": None, "subagent_trajectory_ref": [{"trajectory_id": "t2"}]},
                ]
            },
            metrics={"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 3, "cost_usd": 0.1},
        ),
        step(4, "agent", "Done."),
    ],
    "final_metrics": {"total_cost_usd": 0.1},
    "subagent_trajectories": [
        {"trajectory_id": "t2", "agent": {"name": "helper"}, "steps": [step(1, "user", "?"), step(2, "agent", "yes")]}
    ],
}


def test_a_trajectory() -> None:
    for trace in (read(RUN), load_trace(json.dumps(RUN, indent=1).encode())):
        assert (trace.format, trace.sessions) == ("atif", ("s1",))
        assert story(trace) == [
            "None session_start",
            "0 request system user",
            "0 response",
            '0 tool_call refund {"order": 7}',
            '0 tool_call ask {"order": 7}',
            '0 tool_result refund "done"',
            '0 tool_result ask [{"trajectory_id": "t2"}]',
            "1 request system user assistant tool tool",
            "1 response Done.",
            "2 request user",
            "2 response yes",
            "None session_end",
        ]
    first, second, inner = responses(trace)
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens, second.usage) == (9, 3, None)
    assert (first.model, first.origin.agent, first.origin.run) == ("m", "support", "t1")
    assert (inner.origin.agent, inner.origin.parent_agent, inner.origin.parent_run) == ("helper", "support", "t1")
    assert [call.group for call in calls(trace)] == [0, 0]
    assert (requests(trace)[0].tools, results(trace)[0].is_error) == ([{"name": "refund"}], None)


def test_what_is_broken_is_reported() -> None:
    steps = [7, step(1, "robot", "x"), step(2, "agent", "", tool_calls=[{}]), step(3, "agent", {"no": "text"})]
    trace = read(
        {**RUN, "steps": [*steps, step(4, "agent", "y")], "subagent_trajectories": [5]}, 7, {"steps": 1}, skip_bad=True
    )
    assert (trace.skipped, [response.text for response in responses(trace)]) == (7, ["y"])
