"""Live objects of the frameworks, with their real classes: what `load_trace` takes besides files."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import load_trace
from bylaw.traces.records.objects import encode
from tests.importers.support import calls, results, story

CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}
STORY = ['0 tool_call refund {"order": 7}', '0 tool_result refund "done"', "1 response Done."]


def reported(value: Any) -> tuple[str, list[str]]:
    trace = load_trace(value)
    assert trace.problems == ()
    return trace.format or "", [line for line in story(trace) if "request" not in line and line != "0 response"]


def test_openai() -> None:
    types = pytest.importorskip("openai.types.chat")
    issued = types.ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": [CALL]})
    done = types.ChatCompletionMessage(role="assistant", content="Done.")
    answer = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    assert reported([{"role": "user", "content": "q"}, issued, answer, done]) == ("openai", STORY)
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": issued.model_dump()}
    completion = types.ChatCompletion.model_validate({**body, "choices": [choice]})
    for value in (completion, {"request": {"messages": [{"role": "user", "content": "q"}]}, "response": completion}):
        assert [call.call_id for call in calls(load_trace(value))] == ["c1"]


def test_anthropic() -> None:
    types = pytest.importorskip("anthropic.types")
    use = types.ToolUseBlock(type="tool_use", id="c1", name="refund", input={"order": 7})
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    text = types.TextBlock(type="text", text="Done.")
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [text]},
    ]
    assert reported(messages) == ("anthropic", STORY)
    usage = types.Usage(input_tokens=3, output_tokens=2)
    message = types.Message(
        id="x", type="message", role="assistant", model="m", content=[use], stop_reason="tool_use", usage=usage
    )
    assert [call.call_id for call in calls(load_trace([messages[0], message]))] == ["c1"]


def test_langchain() -> None:
    core = pytest.importorskip("langchain_core.messages")
    load = pytest.importorskip("langchain_core.load")
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11, "input_token_details": {"cache_read": 4}}
    messages = [
        core.HumanMessage("q"),
        core.AIMessage("", tool_calls=[{"id": "c1", "name": "refund", "args": {"order": 7}}], usage_metadata=usage),
        core.ToolMessage("done", tool_call_id="c1"),
        core.AIMessage("Done."),
    ]
    shapes: list[Any] = [messages, tuple(messages), iter(messages), {"messages": messages}]
    shapes += [core.messages_to_dict(messages), [load.dumpd(message) for message in messages]]
    for shape in shapes:
        assert reported(shape) == ("langchain", STORY)
    types = pytest.importorskip("langgraph.types")
    config = {"configurable": {"thread_id": "s1"}}
    state = types.StateSnapshot({"messages": messages}, (), config, None, None, None, (), ())
    assert (reported(state), load_trace(state).sessions) == (("langchain", STORY), ("s1",))
    found = load_trace(messages).turns[0].response.usage
    assert found is not None and (found.input_tokens, found.cached_input_tokens) == (9, 4)
    broken = [{"id": "c2", "name": "refund", "args": "{", "error": None, "type": "invalid_tool_call"}]
    trace = load_trace([messages[0], core.AIMessage("", invalid_tool_calls=broken)])
    assert [(call.name, call.raw_arguments) for call in calls(trace)] == [("refund", "{")]


def test_pydantic_ai() -> None:
    ai = pytest.importorskip("pydantic_ai")
    parts = pytest.importorskip("pydantic_ai.messages")
    returned = {"tool_name": "refund", "tool_call_id": "c1"}
    messages = [
        parts.ModelRequest([parts.UserPromptPart("q", timestamp=datetime(2026, 1, 2, tzinfo=UTC))]),
        parts.ModelResponse([parts.ToolCallPart("refund", {"order": 7}, "c1")]),
        parts.ModelRequest([parts.ToolReturnPart(content="done", outcome="failed", **returned)]),
        parts.ModelResponse([parts.TextPart("Done.")]),
    ]
    assert reported(messages)[1][1] == '0 tool_result refund "done" failed'
    models = pytest.importorskip("pydantic_ai.models.test")
    agent = ai.Agent(models.TestModel())

    @agent.tool_plain
    def refund(order: int) -> str:
        return f"done {order}"

    run = asyncio.run(agent.run("q"))
    for value in (run, run.all_messages(), run.all_messages_json()):
        assert reported(value)[1] == [
            '0 tool_call refund {"order": 0}', '0 tool_result refund "done 0"', '1 response {"refund":"done 0"}',
        ]  # fmt: skip


def test_the_agents_sdk() -> None:
    agents = pytest.importorskip("agents")
    types = pytest.importorskip("openai.types.responses")
    call = types.ResponseFunctionToolCall(type="function_call", call_id="c1", name="refund", arguments='{"order": 7}')
    text = {"type": "output_text", "text": "Done.", "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    done = types.ResponseOutputMessage.model_validate(message)
    output = {"type": "function_call_output", "call_id": "c1", "output": "done"}
    agent = agents.Agent("shop")
    items = [
        agents.ToolCallItem(agent=agent, raw_item=call),
        agents.ToolCallOutputItem(agent=agent, raw_item=output, output="done"),
        agents.MessageOutputItem(agent=agent, raw_item=done),
    ]
    assert reported(items) == ("responses", STORY)

    class Run:
        def to_input_list(self) -> list[Any]:
            return [{"role": "user", "content": "q"}, *(item.to_input_item() for item in items)]

    assert reported(Run()) == ("responses", STORY)
    answers = [agents.ModelResponse(output=[call], usage=agents.Usage(), response_id="r1")]
    assert [one.call_id for one in calls(load_trace(answers))] == ["c1"]


def test_the_state_of_a_run_of_the_agents_sdk() -> None:
    agents = pytest.importorskip("agents")
    types = pytest.importorskip("openai.types.responses")
    call = types.ResponseFunctionToolCall(type="function_call", call_id="c1", name="refund", arguments='{"order": 7}')
    text = {"type": "output_text", "text": "Done.", "annotations": []}
    done = types.ResponseOutputMessage.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    )
    outputs = [[call], [done]]

    class Scripted(agents.Model):  # type: ignore[misc, name-defined]
        async def get_response(self, *_: Any, **__: Any) -> Any:
            return agents.ModelResponse(output=outputs.pop(0), usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    def refund(order: int) -> str:
        return "done"

    agent = agents.Agent("shop", model=Scripted(), tools=[agents.function_tool(refund)])
    run = asyncio.run(agents.Runner.run(agent, "q", run_config=agents.RunConfig(tracing_disabled=True)))
    for value in (run.to_state(), run.to_state().to_json()):
        assert reported(value) == ("agents-sdk", STORY)


def test_raw_responses_of_the_agents_sdk_are_one_session_as_in_a_file() -> None:
    agents = pytest.importorskip("agents")
    pydantic = pytest.importorskip("pydantic")
    types = pytest.importorskip("openai.types.responses")
    for ids in (("r1", "r2"), (None, None)):
        raw = [
            agents.ModelResponse(
                output=[
                    types.ResponseFunctionToolCall(type="function_call", call_id=id, name="refund", arguments="{}")
                ],
                usage=agents.Usage(input_tokens=3, output_tokens=2),
                response_id=own,
            )
            for id, own in zip(("c1", "c2"), ids, strict=True)
        ]
        stored = pydantic.TypeAdapter(list[Any]).dump_python(raw, mode="json")
        for value in (raw, stored):
            trace = load_trace(value)
            assert (trace.format, trace.sessions, trace.problems) == ("agents-sdk", ("1",), ())
            assert [call.call_id for call in calls(trace)] == ["c1", "c2"]
            found = trace.turns[0].response.usage
            assert found is not None and (found.input_tokens, found.output_tokens) == (3, 2)


def test_other_objects() -> None:
    @dataclass
    class Message:
        role: str
        content: Any
        tool_calls: Any = None
        tool_call_id: str | None = None

    messages = [
        Message("user", "q"),
        MappingProxyType({"role": "assistant", "content": None, "tool_calls": (OrderedDict(CALL),)}),
        Message("tool", "done", tool_call_id="c1"),
    ]
    assert [result.content for result in results(load_trace(messages))] == ["done"]
    assert encode({"at": datetime(2026, 1, 2), "raw": b"x"}) == '{"at": "2026-01-02T00:00:00", "raw": "eA=="}'
    circle: list[Any] = []
    circle.append(circle)
    for wrong in (object(), [object()], circle, {"x": float("nan")}, Message):
        with pytest.raises(InputError, match="cannot be read as JSON"):
            load_trace(wrong)
