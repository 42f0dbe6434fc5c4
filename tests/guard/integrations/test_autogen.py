"""AutoGen: real runs of an `AssistantAgent` with a model client that follows a script."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage
from autogen_core.tools import FunctionTool, StaticWorkbench

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
_USAGE = RequestUsage(prompt_tokens=1, completion_tokens=1)


class ScriptedModel(ChatCompletionClient):
    def __init__(self, turns: Any) -> None:
        self.turns = iter(turns)

    async def create(self, messages: Any, **_: Any) -> CreateResult:
        calls = [
            FunctionCall(id=f"c{next(_ids)}", name=name, arguments=json.dumps(given))
            for name, given in next(self.turns, [])
        ]
        reason = "function_calls" if calls else "stop"
        return CreateResult(finish_reason=reason, content=calls or "done", usage=_USAGE, cached=False)

    async def create_stream(self, messages: Any, **more: Any) -> Any:
        yield await self.create(messages, **more)

    async def close(self) -> None: ...

    def actual_usage(self) -> RequestUsage:
        return _USAGE

    def total_usage(self) -> RequestUsage:
        return _USAGE

    def count_tokens(self, messages: Any, **_: Any) -> int:
        return 1

    def remaining_tokens(self, messages: Any, **_: Any) -> int:
        return 1000

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )

    capabilities = model_info


def agent_of(shop: Shop, turns: Any, **more: Any) -> AssistantAgent:
    more = {"tools": functions_of(shop), **more}
    return AssistantAgent(more.pop("name", "desk"), ScriptedModel(turns), max_tool_iterations=9, **more)


class AutoGenDriver(WaitingDriver):
    async def astart(self) -> Outcome:
        self.outcome = outcome = Outcome()
        agent = agent_of(self.shop, self.turns)
        bylaw.integrations.autogen(self.guard, agent, **self.options)
        result = await agent.run(task="go")
        for message in result.messages:
            if isinstance(message, ToolCallExecutionEvent):
                outcome.results += [one.content for one in message.content]
        outcome.answer = result.messages[-1].content
        return outcome


class TestAutoGen(Situations):
    driver = AutoGenDriver


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        yield guard


def test_the_agents_of_a_team_are_under_the_guard(guard: bylaw.Guard) -> None:
    shop = Shop()
    agents = [
        agent_of(shop, [[("drop", {})], [("book", {"seat": 1})]], name="one"),
        agent_of(shop, [[("book", {"seat": 2})]], name="two"),
    ]
    team = RoundRobinGroupChat([*agents, UserProxyAgent("me")], termination_condition=MaxMessageTermination(3))
    asyncio.run(bylaw.integrations.autogen(guard, team).run(task="go"))
    assert shop.runs == [("book", {"seat": 1})], "one session for all, whose limit is one"


def test_a_workbench_of_its_own_is_guarded(guard: bylaw.Guard) -> None:
    shop = Shop()
    tools = [FunctionTool(one, one.__name__) for one in functions_of(shop)]
    for more in ({"workbench": StaticWorkbench(tools)}, {"workbench": [StaticWorkbench(tools[:2])]}):
        agent = agent_of(shop, [[("drop", {})], [("look", {})]], tools=None, **more)
        assert asyncio.run(bylaw.integrations.autogen(guard, agent).run(task="go")).messages[-1].content == "done"
    assert shop.runs == [("look", {})] * 2
    with pytest.raises(bylaw.Denied):
        asyncio.run(bylaw.integrations.autogen(guard, StaticWorkbench(tools)).call_tool("wipe", {}))


def test_streaming(guard: bylaw.Guard) -> None:
    shop = Shop()
    agent = bylaw.integrations.autogen(
        guard, agent_of(shop, [[("drop", {})], [("look", {})]], model_client_stream=True)
    )

    async def run() -> None:
        async for _ in agent.run_stream(task="go"):
            pass

    asyncio.run(run())
    assert shop.runs == [("look", {})]


def test_without_a_further_turn_of_the_model_the_run_still_ends_with_denied(guard: bylaw.Guard) -> None:
    agent = AssistantAgent("desk", ScriptedModel([[("wipe", {})]]), tools=functions_of(Shop()))
    with pytest.raises(bylaw.Denied):
        asyncio.run(bylaw.integrations.autogen(guard, agent).run(task="go"))


def test_a_tool_that_is_added_later_is_guarded(guard: bylaw.Guard) -> None:
    shop = Shop()
    agent = bylaw.integrations.autogen(guard, agent_of(shop, [[("drop", {})]], tools=functions_of(shop)[:1]))
    agent._workbench[0]._tools += [FunctionTool(one, one.__name__) for one in functions_of(shop)[1:]]
    asyncio.run(agent.run(task="go"))
    assert shop.runs == []


def test_an_agent_that_runs_code_is_refused(guard: bylaw.Guard) -> None:
    agent = CodeExecutorAgent("coder", code_executor=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no guard can decide"):
        bylaw.integrations.autogen(guard, agent)


def test_a_tool_that_raises_is_recorded_as_made(guard: bylaw.Guard) -> None:
    class Full(Shop):
        def run(self, tool: str, **arguments: Any) -> str:
            raise ValueError("no seat")

    agent = bylaw.integrations.autogen(guard, agent_of(Full(), [[("book", {"seat": 1})], [("book", {"seat": 2})]]))
    messages = asyncio.run(agent.run(task="go")).messages
    reported = [
        one.content for message in messages if isinstance(message, ToolCallExecutionEvent) for one in message.content
    ]
    assert "no seat" in reported[0] and reported[1].startswith("one booking")


def test_an_agent_is_under_one_guard(guard: bylaw.Guard) -> None:
    agent = bylaw.integrations.autogen(guard, agent_of(Shop(), []))
    assert bylaw.integrations.autogen(guard, agent) is agent
    with bylaw.Guard({"guard": RULES}) as other, pytest.raises(ValueError, match="another guard"):
        bylaw.integrations.autogen(other, agent)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("autogen", tmp_path, monkeypatch)
