"""The trace of a live run has every call of the model, also those that the provider runs itself."""

from __future__ import annotations

from typing import Any

from bylaw.contract.faults.recorder import Recorder
from bylaw.model.events import Response, ToolResult, Trace


def _record(*turns: tuple[dict[str, Any], dict[str, Any]], provider: str) -> Trace:
    recorder = Recorder("run", "What is new?")
    for request, reply in turns:
        recorder.model_turn(request, reply, 1.0, provider)
    return recorder.trace("It rains.", complete=True)


def _calls(trace: Trace) -> list[tuple[str, str | None]]:
    return [(call.name, call.call_id) for one in trace.events if isinstance(one, Response) for call in one.tool_calls]


def _results(trace: Trace) -> list[tuple[str | None, Any]]:
    return [(one.call_id, one.content) for one in trace.events if isinstance(one, ToolResult)]


def test_calls_that_openai_runs_itself_are_recorded() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]}
    asked = {
        "type": "mcp_call",
        "id": "m1",
        "server_label": "news",
        "name": "latest",
        "arguments": "{}",
        "output": "rain",
    }
    searched = {"type": "web_search_call", "id": "s1", "action": {"type": "search", "query": "news"}}
    reply = {"object": "response", "status": "completed", "model": "m", "output": [asked, searched, said]}
    trace = _record(({"model": "m", "input": "What is new?"}, reply), provider="openai_responses")
    assert _calls(trace) == [("latest", "m1"), ("web_search", "s1")] and _results(trace) == [("m1", "rain")]
    assert [one.text for one in trace.events if isinstance(one, Response)] == ["It rains."]


def test_a_custom_tool_of_responses_and_its_result_are_recorded() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls"}
    returned = {"type": "custom_tool_call_output", "call_id": "c1", "output": "a.txt"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]}
    asked = {"role": "user", "content": "What is new?"}
    trace = _record(
        ({"model": "m", "input": [asked]}, {"object": "response", "status": "completed", "output": [call]}),
        (
            {"model": "m", "input": [asked, call, returned]},
            {"object": "response", "status": "completed", "output": [said]},
        ),
        provider="openai_responses",
    )
    assert _calls(trace) == [("shell", "c1")] and _results(trace) == [("c1", "a.txt")]


def test_a_call_that_anthropic_runs_itself_has_its_result() -> None:
    content = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "news"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "rain"}]},
        {"type": "text", "text": "It rains."},
    ]
    reply = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}
    request = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "What is new?"}]}
    trace = _record((request, reply), provider="anthropic")
    assert _calls(trace) == [("web_search", "s1")] and _results(trace) == [("s1", [{"title": "rain"}])]
