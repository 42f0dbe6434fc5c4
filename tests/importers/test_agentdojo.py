"""AgentDojo's runs."""

from __future__ import annotations

from typing import Any

from tests.importers.support import read, results, story


def text(value: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": value}]


CALL = {"function": "refund", "args": {"order": 7}, "id": None, "placeholder_args": None}
RUN = {
    "suite_name": "shop",
    "pipeline_name": "p",
    "user_task_id": "user_task_3",
    "injection_task_id": "injection_task_1",
    "attack_type": "direct",
    "injections": {},
    "messages": [
        {"role": "user", "content": text("refund order 7")},
        {"role": "assistant", "content": text(""), "tool_calls": [CALL, {**CALL, "args": {"order": 8}}]},
        {"role": "tool", "content": text("done"), "tool_call": CALL, "tool_call_id": None, "error": None},
        {"role": "tool", "content": text(""), "tool_call": CALL, "tool_call_id": None, "error": "ValueError: no"},
        {"role": "assistant", "content": text("Done."), "tool_calls": None},
    ],
    "utility": True,
    "security": False,
    "duration": 1.5,
}


def test_a_run() -> None:
    trace = read(RUN)
    assert (trace.format, trace.sessions) == ("agentdojo", ("shop/user_task_3/injection_task_1",))
    assert story(trace)[1:] == [
        "0 request user",
        "0 response",
        '0 tool_call refund {"order": 7}',
        '0 tool_call refund {"order": 8}',
        '0 tool_result refund [{"type": "text", "text": "done"}]',
        '0 tool_result refund "ValueError: no" failed',
        "1 request user assistant tool tool",
        "1 response Done.",
    ]
    assert [result.call_id for result in results(trace)] == ["t0.0", "t0.1"]
    start = trace.events[0]
    assert start.kind == "session_start"
    assert getattr(start, "metadata")["security"] is False  # noqa: B009


def test_what_the_older_version_wrote_and_what_is_broken() -> None:
    older = {
        **RUN,
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "tool_calls": []}],
    }
    trace = read(older, {"suite_name": "shop", "messages": 5}, 7, {**RUN, "messages": ["x"]}, skip_bad=True)
    assert story(trace)[1:3] == ["0 request user", "0 response y"]
    assert trace.skipped == 3
