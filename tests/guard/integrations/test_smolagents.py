"""smolagents: real runs of a `ToolCallingAgent` and of a `CodeAgent`, with a model that follows a script."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smolagents import ActionStep, CodeAgent, Model, Tool, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

import bylaw
from tests.guard.integrations.situations import RULES, Outcome, Shop, Situations, WaitingDriver, run_page

_ids = itertools.count()


class ScriptedModel(Model):
    def __init__(self, turns: Any) -> None:
        super().__init__(model_id="scripted")
        self.turns = iter(turns)

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        turn = next(self.turns, None) or [("final_answer", {"answer": "done"})]
        calls = [
            ChatMessageToolCall(
                id=f"c{next(_ids)}", type="function", function=ChatMessageToolCallFunction(name=name, arguments=given)
            )
            for name, given in turn
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


class CodeModel(ScriptedModel):
    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        turn = next(self.turns, None) or [("final_answer", {"answer": "done"})]
        code = turn if isinstance(turn, str) else "\n".join(_line(*call) for call in turn)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{code}\n</code>")


def _line(name: str, given: Any) -> str:
    call = f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
    return call if name == "final_answer" else f"try:\n    print({call})\nexcept Exception as e:\n    print(e)"


class SmolagentsDriver(WaitingDriver):
    kind: Any = ToolCallingAgent
    model: Any = ScriptedModel

    async def astart(self) -> Outcome:
        return await asyncio.to_thread(self.run)

    def run(self) -> Outcome:
        self.outcome = outcome = Outcome()
        agent = self.kind(tools=tools_of(self.shop), model=self.model(self.turns), verbosity_level=0)
        bylaw.integrations.smolagents(self.guard, agent, **self.options)
        outcome.answer = str(agent.run("go"))
        for step in agent.memory.steps:
            if isinstance(step, ActionStep) and not step.is_final_answer:
                outcome.results += results_of(step)
        return outcome


def results_of(step: Any) -> list[str]:
    text = str(step.observations or step.error or "")
    for noise in ("Execution logs:\n", "Last output from code snippet:\nNone"):
        text = text.replace(noise, "")
    return [line for line in text.split("\n") if line]


class CodeDriver(SmolagentsDriver):
    kind = CodeAgent
    model = CodeModel


def tools_of(shop: Shop) -> list[Tool]:
    @tool
    def look() -> str:
        """Look."""
        return shop.run("look")

    @tool
    def drop() -> str:
        """Drop."""
        return shop.run("drop")

    @tool
    def wipe() -> str:
        """Wipe."""
        return shop.run("wipe")

    @tool
    def delegate() -> str:
        """Delegate."""
        return asyncio.run(shop.delegate())

    @tool
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: how much
        """
        return shop.run("pay", amount=amount)

    @tool
    def book(seat: int) -> str:
        """Book.

        Args:
            seat: which
        """
        return shop.run("book", seat=seat)

    return [look, drop, wipe, delegate, pay, book]


class TestToolCallingAgent(Situations):
    driver = SmolagentsDriver


class TestCodeAgent(Situations):
    driver = CodeDriver


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        yield guard


def code_agent(guard: bylaw.Guard, shop: Shop, *code: str, **more: Any) -> Any:
    agent = CodeAgent(tools=tools_of(shop), model=CodeModel(code), verbosity_level=0, **more)
    return bylaw.integrations.smolagents(guard, agent)


@pytest.mark.parametrize(
    "code",
    [
        "drop()",
        "f = drop\nf()",
        "[f() for f in [drop]]",
        "drop.forward()",
        "drop.__call__()",
        "drop._GuardedTool__call()",
        "drop.__class__",
        "pay({'amount': 500})",
        "pay(500)",
        "import smolagents",
        "getattr(drop, 'forward')()",
    ],
)
def test_code_calls_no_tool_past_the_guard(guard: bylaw.Guard, code: str) -> None:
    shop = Shop()
    code_agent(guard, shop, code).run("go")
    assert shop.runs == []


def test_code_stops_at_a_call_that_may_not_run(guard: bylaw.Guard) -> None:
    shop = Shop()
    agent = code_agent(guard, shop, "drop()\nlook()")
    agent.run("go")
    assert shop.runs == [] and "tables stay" in str(agent.memory.steps[1].error)


def test_code_that_runs_elsewhere_is_refused(guard: bylaw.Guard) -> None:
    agent = CodeAgent(tools=[], model=CodeModel([]), executor=object(), verbosity_level=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="code that runs elsewhere"):
        bylaw.integrations.smolagents(guard, agent)


@pytest.mark.parametrize("kind", [SmolagentsDriver, CodeDriver])
def test_an_agent_that_is_managed_is_under_the_guard(guard: bylaw.Guard, kind: type[SmolagentsDriver]) -> None:
    shop = Shop()
    inner = kind.kind(
        tools=tools_of(shop),
        model=kind.model([[("drop", {})], [("book", {"seat": 1})]]),
        name="helper",
        description="helps",
        verbosity_level=0,
    )
    outer = kind.kind(
        tools=tools_of(shop),
        model=kind.model([[("helper", {"task": "help"})], [("book", {"seat": 2})]]),
        managed_agents=[inner],
        verbosity_level=0,
    )
    bylaw.integrations.smolagents(guard, outer).run("go")
    assert shop.runs == [("book", {"seat": 1})]


@pytest.mark.parametrize("kind", [SmolagentsDriver, CodeDriver])
def test_the_allowlist_has_to_name_managed_agents(kind: type[SmolagentsDriver]) -> None:
    for allowed in (["look"], ["look", "helper"]):
        shop = Shop()
        about = {"name": "helper", "description": "helps", "verbosity_level": 0}
        inner = kind.kind(tools=tools_of(shop), model=kind.model([[("look", {})]]), **about)  # type: ignore[arg-type]
        script = kind.model([[("helper", {"task": "help"})]])
        outer = kind.kind(tools=[], model=script, managed_agents=[inner], verbosity_level=0)
        with bylaw.Guard({"guard": {"tools": allowed, "rules": []}}) as guard, guard.session("s"):
            bylaw.integrations.smolagents(guard, outer).run("go")
        assert (shop.runs == [("look", {})]) is ("helper" in allowed)


@pytest.mark.parametrize("kind", [SmolagentsDriver, CodeDriver])
def test_a_tool_that_is_added_later_is_guarded(guard: bylaw.Guard, kind: type[SmolagentsDriver]) -> None:
    shop = Shop()
    agent = kind.kind(tools=[], model=kind.model([[("drop", {})]]), verbosity_level=0)
    bylaw.integrations.smolagents(guard, agent)
    agent.tools.update({one.name: one for one in tools_of(shop)})
    agent.run("go")
    assert shop.runs == []


def test_streaming(guard: bylaw.Guard) -> None:
    shop = Shop()
    for kind in (SmolagentsDriver, CodeDriver):
        agent = kind.kind(tools=tools_of(shop), model=kind.model([[("drop", {})]]), verbosity_level=0)
        list(bylaw.integrations.smolagents(guard, agent).run("go", stream=True))
    assert shop.runs == []


def test_variables_of_the_agent_are_judged_by_their_values(guard: bylaw.Guard) -> None:
    shop = Shop()
    agent = ToolCallingAgent(
        tools=tools_of(shop), model=ScriptedModel([[("pay", {"amount": "much"})]]), verbosity_level=0
    )
    bylaw.integrations.smolagents(guard, agent).run("go", additional_args={"much": 500})
    assert shop.runs == [] and guard.reviews.list()[0].arguments == {"amount": 500}


@pytest.mark.parametrize("kind", [SmolagentsDriver, CodeDriver])
def test_a_tool_that_raises_is_recorded_as_made(guard: bylaw.Guard, kind: type[SmolagentsDriver]) -> None:
    class Full(Shop):
        def run(self, tool: str, **arguments: Any) -> str:
            raise ValueError("no seat")

    turns = [[("book", {"seat": 1})], [("book", {"seat": 2})]]
    agent = kind.kind(tools=tools_of(Full()), model=kind.model(turns), verbosity_level=0)
    bylaw.integrations.smolagents(guard, agent).run("go")
    reported = [" ".join(results_of(step)) for step in agent.memory.steps[1:3]]
    assert "no seat" in reported[0] and "one booking" in reported[1]


def test_an_agent_is_under_one_guard(guard: bylaw.Guard) -> None:
    agent = bylaw.integrations.smolagents(guard, ToolCallingAgent(tools=[], model=ScriptedModel([]), verbosity_level=0))
    assert bylaw.integrations.smolagents(guard, agent) is agent
    with bylaw.Guard({"guard": RULES}) as other, pytest.raises(ValueError, match="another guard"):
        bylaw.integrations.smolagents(other, agent)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("smolagents", tmp_path, monkeypatch)
