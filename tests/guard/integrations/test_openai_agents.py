"""OpenAI Agents SDK: real runs of an agent with the SDK's own `ScriptedModel`."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the frameworks extra is not installed")

import agents
from agents.testing import ScriptedModel
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

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
agents.set_tracing_disabled(True)


def calls(turn: list[Any]) -> list[Any]:
    return [
        ResponseFunctionToolCall(type="function_call", call_id=f"c{next(_ids)}", name=tool, arguments=json.dumps(given))
        for tool, given in turn
    ]


def saying(text: str) -> list[Any]:
    said = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [ResponseOutputMessage(type="message", id="m", role="assistant", status="completed", content=[said])]


class OpenAIAgentsDriver(Driver):
    async def astart(self) -> Outcome:
        model = ScriptedModel([*map(calls, self.turns), saying("done")])
        plain = agents.Agent(name="desk", model=model, tools=tools_of(self.shop))
        self.agent = bylaw.integrations.openai_agents(self.guard, plain, **self.options)
        return self.outcome(await agents.Runner.run(self.agent, "go"))

    def approve(self, review: str) -> Outcome:
        return self.resume(review, "approve")

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        """The SDK has no edit, so the review is edited."""
        self.guard.reviews.approve(review, by="ann", edited={"tool": "pay", "arguments": arguments})
        return self.approve(review)

    def reject(self, review: str) -> Outcome:
        return self.resume(review, "reject")

    def resume(self, review: str, how: str) -> Outcome:
        state = self.last.to_state()
        (item,) = self.last.interruptions
        getattr(state, how)(item)
        return self.outcome(asyncio.run(agents.Runner.run(self.agent, state)))

    def outcome(self, run: Any) -> Outcome:
        self.last = run
        results = [str(item.output) for item in run.new_items if item.type == "tool_call_output_item"]
        waits = [review.id for review in self.guard.reviews.list(status="pending")] if run.interruptions else []
        return Outcome(results, waits, run.final_output)


def tools_of(shop: Shop) -> list[Any]:
    return [agents.function_tool(one, strict_mode=False) for one in functions_of(shop)]


class TestOpenAIAgents(Situations):
    driver = OpenAIAgentsDriver


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        yield guard


def run(agent: Any, given: Any = "go") -> Any:
    return asyncio.run(agents.Runner.run(agent, given))


def test_a_tool_that_runs_elsewhere_is_refused_unless_it_is_named(guard: bylaw.Guard) -> None:
    plain = agents.Agent(name="desk", tools=[agents.WebSearchTool()])
    with pytest.raises(TypeError, match="no guard can decide calls of `web_search`"):
        bylaw.integrations.openai_agents(guard, plain)
    assert bylaw.integrations.openai_agents(guard, plain, unguarded=["web_search"]).tools == plain.tools


def test_agents_that_hand_over_to_each_other_are_guarded(guard: bylaw.Guard) -> None:
    shop = Shop()
    model = ScriptedModel([calls([("transfer_to_back", {})]), calls([("drop", {})]), saying("done")])
    back = agents.Agent(name="back", model=model, tools=tools_of(shop))
    front = agents.Agent(name="front", model=model, handoffs=[agents.handoff(back)])
    back.handoffs = [front]
    assert run(bylaw.integrations.openai_agents(guard, front)).final_output == "done"
    assert shop.runs == []


@pytest.mark.parametrize("how", ["agent", "handoff"])
@pytest.mark.parametrize("copied", [False, True])
def test_a_handoff_that_is_added_later_is_guarded(guard: bylaw.Guard, how: str, copied: bool) -> None:
    shop = Shop()
    model = ScriptedModel([calls([("transfer_to_back", {})]), calls([("drop", {})]), saying("done")])
    back = agents.Agent(name="back", model=model, tools=tools_of(shop))
    front = bylaw.integrations.openai_agents(guard, agents.Agent(name="front", model=model))
    front = front.clone(name="front 2") if copied else front
    front.handoffs.append(back if how == "agent" else agents.handoff(back))
    done = run(front)
    assert (done.final_output, done.last_agent.name, shop.runs) == ("done", "back", [])


@pytest.mark.parametrize("then", ["block", "pause", "terminate_session"])
@pytest.mark.parametrize("copied", [False, True])
def test_a_handoff_is_decided_like_a_call(then: str, copied: bool) -> None:
    rule = {"id": "stay", "when": {"tool_name_in": ["transfer_to_back"]}, "then": then, "reason": "nobody is there"}
    with bylaw.Guard({"guard": {"mode": "hitl", "rules": [rule]}}) as guard, guard.session("s"):
        model = ScriptedModel([calls([("transfer_to_back", {})]), saying("stayed")])
        back = agents.Agent(name="back", model=ScriptedModel([saying("moved")]))
        noted: list[str] = []
        to_back = agents.handoff(back, on_handoff=lambda _: noted.append("moved"))
        plain = agents.Agent(name="front", model=model, handoffs=[to_back])
        front = bylaw.integrations.openai_agents(guard, plain)
        front = front.clone(name="copy") if copied else front
        if then == "terminate_session":
            with pytest.raises(bylaw.Denied, match="nobody is there"):
                run(front)
            return
        done = run(front)
        assert (done.final_output, done.last_agent, noted) == ("stayed", front, [])
        assert "nobody is there" in str(done.to_input_list())
        if then == "pause":
            guard.reviews.approve(guard.reviews.list()[0].id, by="ann")
            front.model = ScriptedModel([calls([("transfer_to_back", {})])])
            assert run(front).final_output == "moved" and noted == ["moved"]


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_handoff_that_the_allowlist_lacks_is_named_when_the_agent_is_made(
    is_listed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tools = ["look", "transfer_to_back"] if is_listed else ["look"]
    with bylaw.Guard({"guard": {"tools": tools, "rules": []}}) as guard, guard.session("s"):
        back = agents.Agent(name="back", model=ScriptedModel([saying("moved")]))
        model = ScriptedModel([calls([("transfer_to_back", {})]), saying("stayed")])
        front = bylaw.integrations.openai_agents(guard, agents.Agent(name="front", model=model, handoffs=[back]))
        assert ("the handoff `transfer_to_back` is blocked" in caplog.text) is not is_listed
        assert run(front).final_output == ("moved" if is_listed else "stayed")
    assert caplog.text.count("transfer_to_back") == (0 if is_listed else 1)


def test_a_tool_that_is_added_later_is_guarded(guard: bylaw.Guard) -> None:
    shop = Shop()
    guarded = bylaw.integrations.openai_agents(
        guard, agents.Agent(name="desk", model=ScriptedModel([calls([("drop", {})]), saying("done")]))
    )
    guarded.tools.extend(tools_of(shop))
    assert run(guarded).final_output == "done" and shop.runs == []


def test_a_copy_of_a_guarded_agent_is_guarded(guard: bylaw.Guard) -> None:
    shop = Shop()
    model = ScriptedModel([calls([("drop", {})]), saying("done")])
    guarded = bylaw.integrations.openai_agents(guard, agents.Agent(name="desk", model=model))
    assert run(guarded.clone(tools=tools_of(shop))).final_output == "done" and shop.runs == []


def test_streaming(guard: bylaw.Guard) -> None:
    shop = Shop()
    model = ScriptedModel([calls([("drop", {})]), saying("done")])
    guarded = bylaw.integrations.openai_agents(guard, agents.Agent(name="desk", model=model, tools=tools_of(shop)))

    async def run() -> Any:
        result = agents.Runner.run_streamed(guarded, "go")
        async for _ in result.stream_events():
            pass
        return result.final_output

    assert asyncio.run(run()) == "done" and shop.runs == []


def test_a_sub_agent_as_a_tool_may_pause(guard: bylaw.Guard) -> None:
    shop = Shop()
    inner = agents.Agent(
        name="inner", model=ScriptedModel([calls([("pay", {"amount": 500})]), saying("paid")]), tools=tools_of(shop)
    )
    guarded = bylaw.integrations.openai_agents(guard, inner)
    outer = agents.Agent(
        name="outer",
        model=ScriptedModel([calls([("ask_inner", {"input": "pay"})]), saying("done")]),
        tools=[guarded.as_tool("ask_inner", "asks")],
    )
    agent = bylaw.integrations.openai_agents(guard, outer)
    first = run(agent)
    (item,) = first.interruptions
    state = first.to_state()
    state.approve(item)
    assert run(agent, state).final_output == "done"
    assert shop.runs == [("pay", {"amount": 500})]


def test_an_approval_of_all_calls_of_a_tool_is_none_of_a_call_that_nobody_has_seen(guard: bylaw.Guard) -> None:
    shop = Shop()
    driver = OpenAIAgentsDriver(guard, shop, [[("pay", {"amount": 500})], [("pay", {"amount": 900})]])
    driver.start()
    state = driver.last.to_state()
    state.approve(driver.last.interruptions[0], always_approve=True)
    outcome = driver.outcome(run(driver.agent, state))
    assert shop.runs == [("pay", {"amount": 500})]
    assert outcome.results[1].startswith("more than 100; wait for the review")


def test_an_approval_that_the_tool_itself_demands_is_still_asked_for(guard: bylaw.Guard) -> None:
    shop = Shop()
    asking = agents.function_tool(lambda: shop.run("look"), name_override="look", needs_approval=True)
    model = ScriptedModel([calls([("look", {})]), saying("done")])
    agent = bylaw.integrations.openai_agents(guard, agents.Agent(name="desk", model=model, tools=[asking]))
    first = run(agent)
    assert len(first.interruptions) == 1 and shop.runs == []
    state = first.to_state()
    state.approve(first.interruptions[0])
    assert run(agent, state).final_output == "done" and len(shop.runs) == 1


def test_a_tool_runs_with_the_arguments_that_were_judged(guard: bylaw.Guard) -> None:
    """JSON may name an argument twice, and parsers differ in which of them counts."""
    got: list[str] = []

    async def invoke(context: Any, text: str) -> str:
        got.append(text)
        return "ok"

    twice = ResponseFunctionToolCall(
        type="function_call", call_id="twice", name="pay", arguments='{"amount": 5000, "amount": 5}'
    )
    pay = agents.FunctionTool("pay", "pays", {}, invoke, strict_json_schema=False)
    model = ScriptedModel([[twice], saying("done")])
    run(bylaw.integrations.openai_agents(guard, agents.Agent(name="desk", model=model, tools=[pay])))
    assert got == ['{"amount": 5}']


def test_an_agent_is_under_one_guard(guard: bylaw.Guard) -> None:
    agent = bylaw.integrations.openai_agents(guard, agents.Agent(name="desk"))
    assert bylaw.integrations.openai_agents(guard, agent) is agent
    with bylaw.Guard({"guard": RULES}) as other, pytest.raises(ValueError, match="another guard"):
        bylaw.integrations.openai_agents(other, agent)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("openai-agents", tmp_path, monkeypatch)
