"""Google ADK: real runs of a runner with the plugin, and a model that follows a script."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from pydantic import BaseModel

import bylaw
from tests.guard.integrations.situations import (
    RULES,
    Driver,
    Outcome,
    Shop,
    Situations,
    functions_of,
    run_page,
)

_ids = itertools.count()
CONFIRM = "adk_request_confirmation"


class ScriptedModel(BaseLlm):
    turns: Any
    model: str = "scripted"

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        calls = [types.FunctionCall(name=tool, args=given, id=f"c{next(_ids)}") for tool, given in next(self.turns, [])]
        parts = [types.Part(function_call=call) for call in calls] or [types.Part(text="done")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


class ADKDriver(Driver):
    async def astart(self) -> Outcome:
        agent = LlmAgent(name="desk", model=ScriptedModel(turns=iter(self.turns)), tools=tools_of(self.shop))
        self.start_runner(agent)
        self.session = await self.runner.session_service.create_session(app_name="app", user_id="u")
        return await self.send(types.Part(text="go"))

    def start_runner(self, agent: Any) -> None:
        plugin = bylaw.integrations.google_adk(self.guard, **self.options)
        self.runner = InMemoryRunner(agent, app_name="app", plugins=[plugin])
        self.results: dict[str, str] = {}
        self.asked: dict[str, str] = {}

    async def send(self, part: Any) -> Outcome:
        outcome, self.asked = Outcome(), {}
        message = types.Content(role="user", parts=[part])
        async for event in self.runner.run_async(user_id="u", session_id=self.session.id, new_message=message):
            for call in event.get_function_calls():
                if call.name == CONFIRM:
                    payload = call.args["toolConfirmation"].get("payload")
                    self.asked[(payload or {}).get("review", "its own")] = call.id
            for response in event.get_function_responses():
                self.results[response.id] = text(response.response)
            if event.is_final_response() and event.content and event.content.parts[0].text:
                outcome.answer = event.content.parts[0].text
        outcome.results = [self.results[id] for id in self.results]
        outcome.reviews = list(self.asked)
        return outcome

    def approve(self, review: str) -> Outcome:
        return self.answer(review, {"confirmed": True})

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        return self.answer(review, {"confirmed": True, "payload": {"arguments": arguments, "by": "ann"}})

    def reject(self, review: str) -> Outcome:
        return self.answer(review, {"confirmed": False})

    def answer(self, review: str, response: Any) -> Outcome:
        part = types.Part(
            function_response=types.FunctionResponse(name=CONFIRM, id=self.asked[review], response=response)
        )
        return asyncio.run(self.send(part))


def text(response: Any) -> str:
    return str(response.get("error") or response.get("result"))


def tools_of(shop: Shop) -> list[Any]:
    return [FunctionTool(one) for one in functions_of(shop)]


class TestGoogleADK(Situations):
    driver = ADKDriver


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        yield guard


class Team(ADKDriver):
    """A runner of this agent."""

    def run(self, agent: Any) -> Outcome:
        self.start_runner(agent)

        async def run() -> Outcome:
            self.session = await self.runner.session_service.create_session(app_name="app", user_id="u")
            return await self.send(types.Part(text="go"))

        return asyncio.run(run())


def model(*turns: Any) -> ScriptedModel:
    return ScriptedModel(turns=iter(turns))


def test_arguments_that_a_callback_changes_are_judged_as_they_run(guard: bylaw.Guard) -> None:
    def more(tool: Any, args: Any, tool_context: Any) -> None:
        args["amount"] *= 100

    shop = Shop()
    agent = LlmAgent(
        name="desk", model=model([("pay", {"amount": 5})]), tools=tools_of(shop), before_tool_callback=more
    )
    outcome = Team(guard, shop, []).run(agent)
    assert len(outcome.reviews) == 1 and shop.runs == []
    assert guard.reviews.list()[0].arguments == {"amount": 500}


def test_the_agent_of_an_agent_tool_is_under_the_guard(guard: bylaw.Guard) -> None:
    shop = Shop()
    inner = LlmAgent(
        name="inner", description="helps", model=model([("drop", {}), ("book", {"seat": 1})]), tools=tools_of(shop)
    )
    outer = LlmAgent(
        name="outer",
        model=model([("inner", {"request": "help"})], [("book", {"seat": 2})]),
        tools=[AgentTool(inner), *tools_of(shop)],
    )
    Team(guard, shop, []).run(outer)
    assert shop.runs == [("book", {"seat": 1})], "one session for both, whose limit is one"


def test_an_agent_to_which_another_transfers_is_under_the_guard(guard: bylaw.Guard) -> None:
    shop = Shop()
    script = model([("transfer_to_agent", {"agent_name": "inner"})], [("drop", {})])
    inner = LlmAgent(name="inner", description="helps", model=script, tools=tools_of(shop))
    outcome = Team(guard, shop, []).run(LlmAgent(name="outer", model=script, sub_agents=[inner]))
    assert outcome.results[-1].startswith("tables stay") and shop.runs == []


@pytest.mark.parametrize("name", ["transfer_to_agent", "set_model_response"])
def test_the_allowlist_has_to_name_the_tools_of_adk_itself(name: str) -> None:
    class Done(BaseModel):
        text: str

    def look() -> str:
        return shop.run("look")

    shop = Shop()
    for allowed in (["look"], ["look", name]):
        with bylaw.Guard({"guard": {"tools": allowed, "rules": []}}) as guard, guard.session("s"):
            if name == "transfer_to_agent":
                script = model([(name, {"agent_name": "inner"})], [])
                inner = LlmAgent(name="inner", description="helps", model=script)
                agent = LlmAgent(name="outer", model=script, sub_agents=[inner])
            else:
                agent = LlmAgent(name="one", model=model([(name, {"text": "done"})]), output_schema=Done, tools=[look])
            outcome = Team(guard, shop, []).run(agent)
        assert (f"`{name}` is not a tool of this agent" in str(outcome.results)) is (name not in allowed)


def test_a_tool_that_is_added_later_is_guarded(guard: bylaw.Guard) -> None:
    shop = Shop()
    agent = LlmAgent(name="desk", model=model([("look", {})], [], [("drop", {})]))

    def look() -> str:
        agent.tools += tools_of(shop)[1:]
        return shop.run("look")

    agent.tools = [look]
    driver = Team(guard, shop, [])
    driver.run(agent)
    outcome = asyncio.run(driver.send(types.Part(text="go on")))
    assert outcome.results[-1].startswith("tables stay") and shop.runs == [("look", {})]


def test_a_confirmation_that_the_tool_itself_demands_is_still_asked_for(guard: bylaw.Guard) -> None:
    shop = Shop()

    def book(seat: int) -> str:
        return shop.run("book", seat=seat)

    tool = FunctionTool(book, require_confirmation=True)
    driver = Team(guard, shop, [])
    outcome = driver.run(LlmAgent(name="desk", model=model([("book", {"seat": 1})]), tools=[tool]))
    assert outcome.reviews == ["its own"] and shop.runs == []
    assert driver.answer("its own", {"confirmed": True}).answer == "done"
    assert shop.runs == [("book", {"seat": 1})], "the limit of one is not used up by the first half"


def test_a_tool_that_two_runners_share_is_guarded_in_one_of_them(guard: bylaw.Guard) -> None:
    shop = Shop()
    tools = tools_of(shop)
    Team(guard, shop, []).run(LlmAgent(name="desk", model=model([("drop", {})]), tools=tools))
    assert shop.runs == []

    async def run() -> None:
        runner = InMemoryRunner(LlmAgent(name="desk", model=model([("drop", {})]), tools=tools), app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            pass

    asyncio.run(run())
    assert shop.runs == [("drop", {})]


def test_a_tool_that_raises_is_recorded_as_made(guard: bylaw.Guard) -> None:
    def book(seat: int) -> str:
        raise ValueError("no seat")

    with pytest.raises(ValueError, match="no seat"):
        Team(guard, Shop(), []).run(LlmAgent(name="desk", model=model([("book", {"seat": 1})]), tools=[book]))
    assert not guard.decide(bylaw.Attempt(tool="book", arguments={"seat": 2}))


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("google-adk", tmp_path, monkeypatch)
