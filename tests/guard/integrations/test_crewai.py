"""CrewAI: real runs of a crew with the hooks, and a model that follows a script."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crewai import Agent, Crew, Task
from crewai.hooks.dispatch import InterceptionPoint, clear_all, register
from crewai.llms.base_llm import BaseLLM
from crewai.tools import BaseTool, tool

import bylaw
from tests.guard.integrations.situations import RULES, Outcome, Shop, SituationsOfOneTool, WaitingDriver, run_page

_ids = itertools.count()


class ScriptedModel(BaseLLM):
    turns: Any
    results: Any
    seen: Any

    def call(self, messages: Any, tools: Any = None, **_: Any) -> Any:
        for message in messages:
            if isinstance(message, dict) and message.get("role") == "tool" and message["tool_call_id"] not in self.seen:
                self.seen.add(message["tool_call_id"])
                self.results.append(str(message["content"]))
        turn = next(self.turns, [])
        made = lambda name, given: {"name": name, "arguments": json.dumps(given)}  # noqa: E731
        return [
            {"id": f"c{next(_ids)}", "type": "function", "function": made(name, given)} for name, given in turn
        ] or "done"

    async def acall(self, *args: Any, **named: Any) -> Any:
        return self.call(*args, **named)

    def supports_function_calling(self) -> bool:
        return True


def crew_of(shop: Shop, turns: Any, results: list[str], **more: Any) -> Crew:
    model = ScriptedModel(model="scripted", turns=iter(turns), results=results, seen=set())
    agent = Agent(role="desk", goal="help", backstory="helps", llm=model, tools=tools_of(shop), cache=False, **more)
    return Crew(agents=[agent], tasks=[Task(description="go", expected_output="done", agent=agent)], cache=False)


class CrewAIDriver(WaitingDriver):
    async def astart(self) -> Outcome:
        return await asyncio.to_thread(self.run)

    def run(self) -> Outcome:
        self.outcome = outcome = Outcome()
        crew = crew_of(self.shop, self.turns, outcome.results)
        with bylaw.integrations.crewai(self.guard, crew, **self.options):
            outcome.answer = crew.kickoff().raw
        return outcome


def tools_of(shop: Shop) -> list[BaseTool]:
    @tool("look")
    def look() -> str:
        """Look."""
        return shop.run("look")

    @tool("drop")
    def drop() -> str:
        """Drop."""
        return shop.run("drop")

    @tool("wipe")
    def wipe() -> str:
        """Wipe."""
        return shop.run("wipe")

    @tool("delegate")
    def delegate() -> str:
        """Delegate."""
        return asyncio.run(shop.delegate())

    @tool("pay")
    def pay(amount: int) -> str:
        """Pay."""
        return shop.run("pay", amount=amount)

    @tool("book")
    def book(seat: int) -> str:
        """Book."""
        return shop.run("book", seat=seat)

    return [look, drop, wipe, delegate, pay, book]


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    yield
    clear_all()


class TestCrewAI(SituationsOfOneTool):
    driver = CrewAIDriver


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"), bylaw.integrations.crewai(guard):
        yield guard


class TextModel(ScriptedModel):
    """Writes its calls as text."""

    def call(self, messages: Any, tools: Any = None, **_: Any) -> Any:
        self.results[:] = [str(message["content"]) for message in messages]
        turn = next(self.turns, [])
        if not turn:
            return "Thought: I know\nFinal Answer: done"
        name, given = turn[0]
        return f"Thought: go\nAction: {name}\nAction Input: {json.dumps(given)}"

    def supports_function_calling(self) -> bool:
        return False


KICKOFFS = [lambda crew: crew.kickoff(), lambda crew: asyncio.run(crew.akickoff())]


def text_crew(shop: Shop, turns: Any, results: list[str]) -> Crew:
    model = TextModel(model="text", turns=iter(turns), results=results, seen=set())
    agent = Agent(role="desk", goal="help", backstory="helps", llm=model, tools=tools_of(shop), cache=False)
    return Crew(agents=[agent], tasks=[Task(description="go", expected_output="done", agent=agent)], cache=False)


@pytest.mark.parametrize("kickoff", KICKOFFS)
def test_an_agent_that_writes_its_calls_as_text_is_decided(guard: bylaw.Guard, kickoff: Any) -> None:
    shop, results = Shop(), list[str]()
    assert kickoff(text_crew(shop, [[("drop", {})], [("look", {})]], results)).raw == "done"
    assert shop.runs == [("look", {})] and "tables stay" in " ".join(results)


@pytest.mark.parametrize("kickoff", KICKOFFS)
def test_a_tool_that_crewai_calls_again_after_an_exception_is_decided_again(guard: bylaw.Guard, kickoff: Any) -> None:
    class Full(Shop):
        def run(self, tool: str, **arguments: Any) -> str:
            super().run(tool, **arguments)
            raise ValueError("no seat")

    shop = Full()
    kickoff(text_crew(shop, [[("book", {"seat": 1})], [("look", {})]], []))
    assert shop.runs.count(("book", {"seat": 1})) == 1, "the limit is one"
    assert shop.runs.count(("look", {})) > 1, "which has no limit"


@pytest.mark.parametrize("how", ["kickoff_async", "akickoff"])
def test_a_crew_that_runs_with_asyncio_is_decided(guard: bylaw.Guard, how: str) -> None:
    shop, results = Shop(), list[str]()
    asyncio.run(getattr(crew_of(shop, [[("drop", {})], [("look", {})]], results), how)())
    assert shop.runs == [("look", {})] and results[0].startswith("tables stay")


def test_an_agent_without_a_crew_is_decided(guard: bylaw.Guard) -> None:
    shop, results = Shop(), list[str]()
    crew_of(shop, [[("drop", {})], [("look", {})]], results).agents[0].kickoff("go")
    assert shop.runs == [("look", {})]


def test_what_a_later_hook_changes_is_not_what_runs(guard: bylaw.Guard) -> None:
    def more(context: Any) -> None:
        if context.tool_name == "pay":
            context.tool_input["amount"] = 500

    shop = Shop()
    register(InterceptionPoint.PRE_TOOL_CALL, more)
    crew_of(shop, [[("pay", {"amount": 5})]], []).kickoff()
    assert shop.runs == [("pay", {"amount": 5})]


def test_what_an_earlier_hook_changes_is_judged() -> None:
    def more(context: Any) -> None:
        context.tool_input["amount"] = 500

    shop, results = Shop(), list[str]()
    register(InterceptionPoint.PRE_TOOL_CALL, more)
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"), bylaw.integrations.crewai(guard):
        crew_of(shop, [[("pay", {"amount": 5})]], results).kickoff()
    assert shop.runs == [] and results[0].startswith("more than 100")


def test_an_agent_to_which_work_is_delegated_is_decided(guard: bylaw.Guard) -> None:
    shop, results = Shop(), list[str]()
    work = {"task": "drop it", "context": "none", "coworker": "helper"}
    outer = crew_of(shop, [[("delegate_work_to_coworker", work)]], results, allow_delegation=True)
    helper = crew_of(shop, [[("drop", {})], [("look", {})]], results).agents[0]
    helper.role = "helper"
    outer.agents.append(helper)
    outer.kickoff()
    assert shop.runs == [("look", {})]


@pytest.mark.parametrize("name", ["delegate_work_to_coworker", "ask_question_to_coworker"])
def test_the_allowlist_has_to_name_delegation(name: str) -> None:
    for allowed in (["look"], ["look", name]):
        shop, results = Shop(), list[str]()
        work = {"task": "look", "question": "look?", "context": "none", "coworker": "helper"}
        outer = crew_of(shop, [[(name, work)]], results, allow_delegation=True)
        helper = crew_of(shop, [[("look", {})]], results).agents[0]
        helper.role = "helper"
        outer.agents.append(helper)
        rules = {"guard": {"tools": allowed, "rules": []}}
        with bylaw.Guard(rules) as guard, guard.session("s"), bylaw.integrations.crewai(guard):
            outer.kickoff()
        assert (shop.runs == [("look", {})]) is (name in allowed)


def test_a_result_from_the_cache_is_decided(guard: bylaw.Guard) -> None:
    shop, results = Shop(), list[str]()
    model = ScriptedModel(model="scripted", turns=iter([[("book", {"seat": 1})]] * 2), results=results, seen=set())
    agent = Agent(role="desk", goal="help", backstory="helps", llm=model, tools=tools_of(shop))
    Crew(agents=[agent], tasks=[Task(description="go", expected_output="done", agent=agent)], cache=True).kickoff()
    assert len(shop.runs) == 1 and results[1].startswith("one booking")


def test_a_tool_that_raises_is_recorded_as_made(guard: bylaw.Guard) -> None:
    class Full(Shop):
        def run(self, tool: str, **arguments: Any) -> str:
            raise ValueError("no seat")

    results = list[str]()
    crew_of(Full(), [[("book", {"seat": 1})], [("book", {"seat": 2})]], results).kickoff()
    assert "no seat" in results[0] and results[1].startswith("one booking")


def test_an_edit_of_a_call_without_arguments_runs_nothing_else() -> None:
    rules = {"mode": "hitl", "rules": [{"id": "ask", "when": {"tool_name_in": ["look"]}, "then": "pause"}]}
    shop = Shop()
    with bylaw.Guard({"guard": rules}) as guard, guard.session("s"):
        driver = CrewAIDriver(guard, shop, [[("look", {})]])
        (review,) = driver.start().reviews
        guard.reviews.approve(review, by="ann", edited={"tool": "look", "arguments": {"at": 1}})
        assert "another call was approved" in driver.approve(review).results[0]
    assert shop.runs == []


def test_another_crew_is_left_alone() -> None:
    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard, bylaw.integrations.crewai(guard, crew_of(shop, [], [])):
        crew_of(shop, [[("drop", {})]], []).kickoff()
    assert shop.runs == [("drop", {})]


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("crewai", tmp_path, monkeypatch)
