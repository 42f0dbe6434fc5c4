"""LlamaIndex: real runs of a `FunctionAgent` with LlamaIndex's own mock model, which follows a script."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

import bylaw
from tests.guard.integrations.situations import (
    RULES,
    Outcome,
    Shop,
    Situations,
    WaitingDriver,
    functions_of,
    run_page,
)

_ids = itertools.count()


def model(turns: Any) -> MockFunctionCallingLLM:
    script = iter(turns)

    def respond(messages: Any, **_: Any) -> ChatMessage:
        turn = next(script, [])
        blocks = [
            ToolCallBlock(tool_call_id=f"c{next(_ids)}", tool_name=tool, tool_kwargs=given) for tool, given in turn
        ]
        return ChatMessage(role="assistant", blocks=blocks) if blocks else ChatMessage(role="assistant", content="done")

    return MockFunctionCallingLLM(response_generator=respond)


class LlamaIndexDriver(WaitingDriver):
    async def astart(self) -> Outcome:
        self.options.pop("wait", None)
        agent = FunctionAgent(name="desk", tools=functions_of(self.shop), llm=model(self.turns), streaming=False)
        return await self.run(bylaw.integrations.llama_index(self.guard, agent, **self.options))

    async def run(self, agent: Any) -> Outcome:
        self.outcome = outcome = Outcome()
        self.waiting: dict[str, Any] = {}
        self.loop, self.handler = asyncio.get_running_loop(), agent.run(user_msg="go")
        found: dict[str, str] = {}
        async for event in self.handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                self.waiting[event.review] = event
            elif isinstance(event, ToolCallResult):
                found[event.tool_id] = str(event.tool_output.content)
        outcome.results[:] = [found[id] for id in sorted(found, key=lambda id: int(id[1:]))]
        outcome.answer = str((await self.handler).response.content)
        return outcome

    def pending(self) -> list[str]:
        return list(getattr(self, "waiting", ()))

    def approve(self, review: str) -> Outcome:
        return self.answer(review, response="approve")

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        return self.answer(review, response="edit", arguments=arguments)

    def reject(self, review: str) -> Outcome:
        return self.answer(review, response="reject")

    def answer(self, review: str, **given: Any) -> Outcome:
        self.waiting.pop(review)
        event, sent = HumanResponseEvent(review=review, by="ann", **given), threading.Event()
        self.loop.call_soon_threadsafe(lambda: (self.handler.ctx.send_event(event), sent.set()))
        sent.wait(5)
        return self.so_far()


class TestLlamaIndex(Situations):
    driver = LlamaIndexDriver


class WorkflowDriver(LlamaIndexDriver):
    """The same agent in an `AgentWorkflow`."""

    async def astart(self) -> Outcome:
        self.options.pop("wait", None)
        agent = FunctionAgent(
            name="desk", description="helps", tools=functions_of(self.shop), llm=model(self.turns), streaming=False
        )
        return await self.run(
            bylaw.integrations.llama_index(self.guard, AgentWorkflow([agent], root_agent="desk"), **self.options)
        )


class TestAgentWorkflow(Situations):
    driver = WorkflowDriver


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        yield guard


def run(agent: Any) -> Any:
    async def run() -> Any:
        return await agent.run(user_msg="go")

    return asyncio.run(run())


def test_streaming(guard: bylaw.Guard) -> None:
    shop = Shop()
    agent = FunctionAgent(tools=functions_of(shop), llm=model([[("drop", {})], [("look", {})]]), streaming=True)
    run(bylaw.integrations.llama_index(guard, agent))
    assert shop.runs == [("look", {})]


def test_an_agent_that_writes_its_calls_as_text_is_decided(guard: bylaw.Guard) -> None:
    shop = Shop()
    script = iter(["Thought: go\nAction: drop\nAction Input: {}", "Thought: I know\nAnswer: done"])
    text = MockFunctionCallingLLM(
        response_generator=lambda messages, **_: ChatMessage(role="assistant", content=next(script))
    )
    agent = ReActAgent(tools=functions_of(shop), llm=text, streaming=False)
    assert str(run(bylaw.integrations.llama_index(guard, agent))) == "done"
    assert shop.runs == []


def test_an_agent_to_which_another_hands_over_is_under_the_guard(guard: bylaw.Guard) -> None:
    shop = Shop()
    turns = [[("handoff", {"to_agent": "back", "reason": "help"})]]
    front = FunctionAgent(name="front", description="asks", llm=model(turns), streaming=False)
    back = FunctionAgent(
        name="back", description="helps", tools=functions_of(shop), llm=model([[("drop", {})]]), streaming=False
    )
    run(bylaw.integrations.llama_index(guard, AgentWorkflow([front, back], root_agent="front")))
    assert shop.runs == []


def test_the_allowlist_has_to_name_handoffs() -> None:
    for allowed in (["look"], ["look", "handoff"]):
        shop = Shop()
        turns = [[("handoff", {"to_agent": "back", "reason": "help"})]]
        front = FunctionAgent(name="front", description="asks", llm=model(turns), streaming=False)
        back = FunctionAgent(
            name="back", description="helps", tools=functions_of(shop), llm=model([[("look", {})]]), streaming=False
        )
        with bylaw.Guard({"guard": {"tools": allowed, "rules": []}}) as guard, guard.session("s"):
            run(bylaw.integrations.llama_index(guard, AgentWorkflow([front, back], root_agent="front")))
        assert (shop.runs == [("look", {})]) is ("handoff" in allowed)


def test_a_tool_that_itself_waits_for_a_person_is_one_call(guard: bylaw.Guard) -> None:
    shop = Shop()

    async def book(ctx: Context, seat: int) -> str:
        """Book."""
        await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="sure?"), waiter_id="own")
        return shop.run("book", seat=seat)

    book.__annotations__["ctx"] = Context  # LlamaIndex does not resolve it
    agent = FunctionAgent(tools=[book], llm=model([[("book", {"seat": 1})]]), streaming=False)
    bylaw.integrations.llama_index(guard, agent)

    async def answer() -> str:
        handler = agent.run(user_msg="go")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        return str(await handler)

    assert asyncio.run(answer()) == "done"
    assert shop.runs == [("book", {"seat": 1})], "the limit of one is not used up by the first half"


def test_a_tool_that_is_added_later_is_guarded(guard: bylaw.Guard) -> None:
    shop = Shop()
    agent = FunctionAgent(tools=functions_of(shop)[:1], llm=model([[("drop", {})]]), streaming=False)
    bylaw.integrations.llama_index(guard, agent)
    agent.tools = [FunctionTool.from_defaults(one) for one in functions_of(shop)]
    run(agent)
    assert shop.runs == []


def test_a_tool_that_raises_is_recorded_as_made(guard: bylaw.Guard) -> None:
    class Full(Shop):
        def run(self, tool: str, **arguments: Any) -> str:
            raise ValueError("no seat")

    driver = LlamaIndexDriver(guard, Full(), [[("book", {"seat": 1})], [("book", {"seat": 2})]])
    reported = driver.start().results
    assert "no seat" in reported[0] and reported[1].startswith("one booking")


def test_an_agent_is_under_one_guard(guard: bylaw.Guard) -> None:
    agent = bylaw.integrations.llama_index(guard, FunctionAgent(tools=functions_of(Shop()), llm=model([])))
    assert bylaw.integrations.llama_index(guard, agent) is agent
    with bylaw.Guard({"guard": RULES}) as other, pytest.raises(ValueError, match="another guard"):
        bylaw.integrations.llama_index(other, agent)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("llama-index", tmp_path, monkeypatch)
