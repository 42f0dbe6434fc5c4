"""Models of frameworks that no HTTP carries are recorded through the framework, once, and what cannot be is counted."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import bylaw
from bylaw.model.events import ToolResult
from tests.record.model_clients import notes, read, responses
from tests.record.server import Server

ASKED = [("system", "be kind"), ("user", "Where is A-17?")]


def _fake() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage("It is on its way.")]))


def _invoke() -> None:
    _fake().invoke(ASKED)


def _ainvoke() -> None:
    asyncio.run(_fake().ainvoke(ASKED))


def _stream() -> None:
    list(_fake().stream(ASKED))


def _astream() -> None:
    async def go() -> None:
        async for _ in _fake().astream(ASKED):
            pass

    asyncio.run(go())


@pytest.mark.parametrize("ask", [_invoke, _ainvoke, _stream, _astream])
def test_a_model_of_langchain_is_recorded(ask: Any, tmp_path: Path) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        ask()
    assert (recording.turns, recording.lost) == (1, 0)
    (said,) = responses(read(tmp_path / "run.jsonl"))
    assert said.text == "It is on its way." and said.request is not None
    assert [one["content"] for one in said.request.messages or ()] == ["be kind", "Where is A-17?"]
    assert (said.request.metadata or {})["carried_by"] == "langchain"


def test_a_tool_of_langchain_that_has_failed_is_recorded_as_failed(tmp_path: Path) -> None:
    call = {"name": "find_order", "args": {"order": "A-17"}, "id": "c1"}
    failed = ToolMessage("no such order", tool_call_id="c1", status="error")
    model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("There is none.")]))
    with bylaw.record(tmp_path / "run.jsonl"):
        asked = model.invoke(ASKED)
        model.invoke([*ASKED, asked, failed])
    (result,) = (one for one in read(tmp_path / "run.jsonl").events if isinstance(one, ToolResult))
    assert (result.call_id, result.content, result.is_error) == ("c1", "no such order", True)


def test_a_call_of_langchain_whose_arguments_are_no_json_is_recorded(tmp_path: Path) -> None:
    invalid = {"name": "find_order", "args": '{"order": ', "id": "c1", "error": "no JSON", "type": "invalid_tool_call"}
    with bylaw.record(tmp_path / "run.jsonl"):
        GenericFakeChatModel(messages=iter([AIMessage("", invalid_tool_calls=[invalid])])).invoke(ASKED)
    (said,) = responses(read(tmp_path / "run.jsonl"))
    assert [(call.name, call.call_id, call.raw_arguments) for call in said.tool_calls] == [
        ("find_order", "c1", '{"order": ')
    ]


def test_a_call_of_pydantic_ai_is_recorded_with_its_tools(tmp_path: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    agent = Agent(TestModel(custom_output_text="It is on its way."), system_prompt="be kind")

    @agent.tool_plain
    def find_order(order: str) -> str:
        return "sent on Monday"

    with bylaw.record(tmp_path / "run.jsonl") as recording:
        asyncio.run(agent.run("Where is A-17?"))
    assert (recording.turns, recording.lost) == (2, 0)
    first, last = responses(read(tmp_path / "run.jsonl"))
    assert [call.name for call in first.tool_calls] == ["find_order"] and last.text == "It is on its way."
    assert "sent on Monday" in (tmp_path / "run.jsonl").read_text()


def test_a_tool_of_pydantic_ai_that_asks_for_a_retry_has_failed(tmp_path: Path) -> None:
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.models.test import TestModel

    agent, tries = Agent(TestModel()), iter((True, False))

    @agent.tool_plain
    def find_order(order: str) -> str:
        if next(tries):
            raise ModelRetry("no such order")
        return "sent on Monday"

    with bylaw.record(tmp_path / "run.jsonl"):
        asyncio.run(agent.run("Where is A-17?"))
    first, second = (one for one in read(tmp_path / "run.jsonl").events if isinstance(one, ToolResult))
    assert first.is_error is True and "no such order" in str(first.content) and second.content == "sent on Monday"
    assert first.call is not None and first.call.name == "find_order"


def test_calls_that_a_provider_runs_itself_are_recorded_from_pydantic_ai(tmp_path: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, NativeToolCallPart, NativeToolReturnPart, TextPart
    from pydantic_ai.models.function import FunctionModel

    asked = NativeToolCallPart("web_search", {"query": "news"}, tool_call_id="s1")
    found = NativeToolReturnPart("web_search", {"title": "rain"}, tool_call_id="s1")
    said = ModelResponse(parts=[asked, found, TextPart("It rains.")])
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        asyncio.run(Agent(FunctionModel(lambda messages, info: said)).run("What is new?"))
    trace = read(tmp_path / "run.jsonl")
    (response,) = responses(trace)
    (result,) = (one for one in trace.events if isinstance(one, ToolResult))
    assert [(call.name, call.arguments) for call in response.tool_calls] == [("web_search", {"query": "news"})]
    assert (response.text, result.call_id, result.content) == ("It rains.", "s1", {"title": "rain"})
    assert recording.lost == 0


def _streamed_by_pydantic_ai(reads_all: bool) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    async def go() -> None:
        async with Agent(TestModel(custom_output_text="It is on its way.")).run_stream("Where?") as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                if not reads_all:
                    break

    return go


def _streamed_by_langchain(reads_all: bool) -> Any:
    async def go() -> None:
        stream = _fake().astream("Where?")
        async for _ in stream:
            if not reads_all:
                break
        await stream.aclose()

    return go


@pytest.mark.parametrize("reads_all", [True, False])
@pytest.mark.parametrize("stream", [_streamed_by_langchain, _streamed_by_pydantic_ai])
def test_a_stream_is_recorded_as_far_as_it_was_read(tmp_path: Path, stream: Any, reads_all: bool) -> None:
    """The OpenAI Agents SDK, whose import takes seconds, has its case in `tests/live/python/test_frameworks.py`."""
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        asyncio.run(stream(reads_all)())
    assert (recording.turns, recording.errors, recording.lost) == (1, 0, 0)
    trace = read(tmp_path / "run.jsonl")
    (said,) = responses(trace)
    assert said.text is not None and "It is on its way.".startswith(said.text) and said.text.startswith("It")
    assert said.request is not None and "Where?" in str(said.request.messages)
    assert (said.text == "It is on its way.") == reads_all
    assert [one.label for one in notes(trace)] == ([] if reads_all else ["incomplete_response"])


def test_what_an_agent_does_between_two_pieces_is_not_part_of_the_call(tmp_path: Path, server: Server) -> None:
    """Each piece may also be read by a task of its own, as `asyncio.wait_for` does."""

    async def go() -> None:
        stream = _fake().astream(ASKED)
        with contextlib.suppress(StopAsyncIteration):
            while True:
                await asyncio.wait_for(anext(stream), 300)
                if not recording.turns:
                    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
                    httpx.post(f"{server.url}/v1/chat/completions", json=body)

    with bylaw.record(tmp_path / "run.jsonl") as recording:
        asyncio.run(go())
    assert (recording.turns, recording.lost) == (2, 0)


def test_a_model_that_is_defined_during_the_recording_is_recorded(tmp_path: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models import Model

    before = vars(Model).get("__init_subclass__")
    with bylaw.record(tmp_path / "run.jsonl") as recording:

        class Late(Model):
            model_name = "late"
            system = "here"

            async def request(self, *args: Any) -> ModelResponse:
                return ModelResponse(parts=[TextPart("It is late.")])

        assert asyncio.run(Agent(Late()).run("hello")).output == "It is late."
    assert (recording.turns, recording.lost) == (1, 0)
    assert vars(Model).get("__init_subclass__") is before


class Failing(GenericFakeChatModel):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise RuntimeError("no tokens left")


def test_a_call_that_fails_or_is_cancelled_is_an_error(tmp_path: Path) -> None:
    async def cancelled() -> None:
        from pydantic_ai import Agent
        from pydantic_ai.models.function import FunctionModel

        asked = asyncio.Event()

        async def never(*_: Any) -> Any:
            asked.set()
            await asyncio.sleep(300)

        running = asyncio.create_task(Agent(FunctionModel(never)).run("hello"))
        await asked.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    with bylaw.record(tmp_path / "run.jsonl") as recording:
        with pytest.raises(RuntimeError, match="no tokens left"):
            Failing(messages=iter([])).invoke(ASKED)
        asyncio.run(cancelled())
    assert (recording.turns, recording.errors, recording.lost) == (0, 2, 0)
    first, second = notes(read(tmp_path / "run.jsonl"))
    assert (
        first.label == second.label == "model_error" and "no tokens left" in str(first) and "Cancelled" in str(second)
    )


class OverHttp(GenericFakeChatModel):
    """A model of a framework that asks a server."""

    url: str

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        said = httpx.post(self.url, json=body).json()["choices"][0]["message"]["content"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


def test_what_http_carried_is_recorded_once(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        OverHttp(messages=iter([]), url=f"{server.url}/v1/chat/completions").invoke(ASKED)
    assert (recording.turns, recording.lost) == (1, 0)
    (said,) = responses(read(tmp_path / "run.jsonl"))
    assert said.request is not None and "carried_by" not in (said.request.metadata or {})


def test_what_cannot_be_read_is_counted_and_does_not_reach_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("langchain_core.messages.convert_to_openai_messages", lambda _messages: 1 / 0)
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        assert _fake().invoke(ASKED).content == "It is on its way."
    assert (recording.turns, recording.lost) == (0, 1) and "ZeroDivisionError" in caplog.text


def test_nothing_is_patched_after_the_recording(tmp_path: Path) -> None:
    from langchain_core.language_models.chat_models import BaseChatModel

    before = BaseChatModel.generate
    with bylaw.record(tmp_path / "run.jsonl"):
        assert BaseChatModel.generate is not before
    assert BaseChatModel.generate is before
