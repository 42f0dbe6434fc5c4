"""Pydantic AI: real runs of an agent with a `FunctionModel` that follows a script."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the frameworks extra is not installed")

import pydantic_ai
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.toolsets import FunctionToolset

import bylaw
from bylaw.guard.stores import MemoryStore
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


class PydanticAIDriver(Driver):
    async def astart(self) -> Outcome:
        turns = iter(self.turns)

        def script(messages: Any, info: Any) -> ModelResponse:
            calls = [ToolCallPart(tool, arguments, f"c{next(_ids)}") for tool, arguments in next(turns, [])]
            return ModelResponse(parts=calls or [TextPart("done")])

        guarding = bylaw.integrations.pydantic_ai(self.guard, **self.options)
        self.agent = pydantic_ai.Agent(
            FunctionModel(script), output_type=[str, DeferredToolRequests], capabilities=[guarding]
        )
        for tool in functions_of(self.shop):
            self.agent.tool_plain(tool)
        return self._outcome(await self.agent.run("go"))

    def approve(self, review: str) -> Outcome:
        return self._resume(review, ToolApproved())

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        return self._resume(review, ToolApproved(override_args=arguments))

    def reject(self, review: str) -> Outcome:
        return self._resume(review, ToolDenied("no"))

    def _resume(self, review: str, answer: Any) -> Outcome:
        requests = self.last.output
        (call_id,) = [id for id, about in requests.metadata.items() if about["review"] == review]
        results = DeferredToolResults(approvals={call_id: answer}, metadata={call_id: {"by": "ann"}})
        history = self.last.all_messages()
        run = self.agent.run(message_history=history, deferred_tool_results=results)
        return self._outcome(asyncio.run(run))

    def _outcome(self, run: Any) -> Outcome:
        self.last = run
        parts = [part for message in run.all_messages() for part in message.parts]
        results = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        if isinstance(run.output, str):
            return Outcome(results, [], run.output)
        return Outcome(results, [about["review"] for about in run.output.metadata.values()])


class TestPydanticAI(Situations):
    driver = PydanticAIDriver


def test_arguments_that_another_capability_changes_are_judged_as_they_run() -> None:
    class Raise(AbstractCapability[Any]):
        async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            return {"amount": args["amount"] * 100}

    shop, turns = Shop(), iter([[ToolCallPart("pay", {"amount": 5}, "c1")]])
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        agent = pydantic_ai.Agent(
            FunctionModel(lambda *_: ModelResponse(parts=next(turns, [TextPart("done")]))),
            output_type=[str, DeferredToolRequests],
            capabilities=[bylaw.integrations.pydantic_ai(guard), Raise()],
        )
        for tool in functions_of(shop):
            agent.tool_plain(tool)
        output = asyncio.run(agent.run("go")).output
        assert isinstance(output, DeferredToolRequests) and shop.runs == []
        assert guard.reviews.list()[0].arguments == {"amount": 500}


def test_tools_of_a_run_and_tools_that_replace_others_are_guarded() -> None:
    shop = Shop()
    tools: Any = FunctionToolset(functions_of(shop))
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):

        def agent() -> Any:
            turns = iter([[ToolCallPart("drop", {})]])
            respond = lambda *_: ModelResponse(parts=next(turns, [TextPart("done")]))  # noqa: E731
            return pydantic_ai.Agent(FunctionModel(respond), capabilities=[bylaw.integrations.pydantic_ai(guard)])

        assert asyncio.run(agent().run("go", toolsets=[tools])).output == "done"
        other = agent()
        with other.override(toolsets=[tools]):
            assert asyncio.run(other.run("go")).output == "done"
        other = agent()
        with other.override(tools=functions_of(shop)):
            assert asyncio.run(other.run("go")).output == "done"
    assert shop.runs == []


def test_streaming() -> None:
    shop = Shop()

    async def respond(messages: Any, info: Any) -> Any:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="drop", json_args="{}")}
        else:
            yield "done"

    async def run() -> str:
        async with agent.run_stream("go") as result:
            return str(await result.get_output())

    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        model = FunctionModel(stream_function=respond)
        agent = pydantic_ai.Agent(model, tools=functions_of(shop), capabilities=[bylaw.integrations.pydantic_ai(guard)])
        assert asyncio.run(run()) == "done"
    assert shop.runs == []


def output_agent(guard: bylaw.Guard, function: Any, amounts: list[int], *more: Any) -> Any:
    given = iter(amounts)

    def respond(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"amount": next(given)}, f"c{next(_ids)}")])

    guarding = [bylaw.integrations.pydantic_ai(guard), *more]
    return pydantic_ai.Agent(FunctionModel(respond), output_type=function, capabilities=guarding)


def test_an_output_function_is_decided_and_recorded() -> None:
    runs: list[float] = []

    def pay(amount: float) -> str:
        runs.append(amount)
        return "paid"

    class Raise(AbstractCapability[Any]):
        async def before_output_process(self, ctx: Any, *, output_context: Any, output: Any) -> Any:
            return output * 100

    store = MemoryStore()
    with bylaw.Guard({"guard": RULES}, store=store) as guard, guard.session("s"):
        assert asyncio.run(output_agent(guard, pay, [500, 5]).run("go")).output == "paid"
        assert runs == [5]
        assert [row.data["content"] for row in store.events() if row.kind == "result"] == ["paid"]
        with pytest.raises(pydantic_ai.UnexpectedModelBehavior):
            asyncio.run(output_agent(guard, pay, [7] * 9, Raise()).run("go"))
    assert runs == [5], "700 was judged"


def test_an_output_function_that_ends_the_session_and_one_that_is_streamed() -> None:
    runs: list[Any] = []

    def wipe(amount: float) -> str:
        runs.append(amount)
        return "wiped"

    def look(amount: float) -> str:
        runs.append(amount)
        return "seen"

    async def respond(messages: Any, info: Any) -> Any:
        for part in ('{"amou', 'nt": 5', "0}"):
            yield {0: DeltaToolCall(info.output_tools[0].name if part[0] == "{" else None, part, tool_call_id="s1")}

    async def stream() -> list[Any]:
        model = FunctionModel(stream_function=respond)
        agent = pydantic_ai.Agent(model, output_type=look, capabilities=[bylaw.integrations.pydantic_ai(guard)])
        async with agent.run_stream("go") as result:
            return [one async for one in result.stream_output(debounce_by=None)]

    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        assert asyncio.run(stream())[-1] == "seen" and runs == [50]
        with pytest.raises(bylaw.Denied, match="it is over"):
            asyncio.run(output_agent(guard, wipe, [1]).run("go"))
    assert runs == [50]


def test_who_approves_is_in_the_review() -> None:
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        driver = PydanticAIDriver(guard, Shop(), [[("pay", {"amount": 500})]])
        (review,) = driver.start().reviews
        driver.approve(review)
        found = guard.reviews.get(review)
        assert found is not None and found.decided_by == "ann"


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("pydantic-ai", tmp_path, monkeypatch)
