"""Models of frameworks that no HTTP carries are recorded through the framework, once, and what cannot be is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import bylaw
from tests.record.model_clients import read, responses
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


def test_a_streamed_call_that_cannot_be_recorded_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    async def go() -> None:
        async with Agent(TestModel()).run_stream("hello") as result:
            await result.get_output()

    with bylaw.record(tmp_path / "run.jsonl") as recording:
        asyncio.run(go())
    assert (recording.turns, recording.lost) == (0, 1)
    assert "`TestModel`, which no HTTP carries" in caplog.text


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
