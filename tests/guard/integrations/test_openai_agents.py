"""OpenAI Agents SDK: real runs of an agent with the SDK's own `ScriptedModel`."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

agents = pytest.importorskip("agents", reason="the frameworks extra is not installed")

from agents.testing import ScriptedModel
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import bylaw
from tests.guard.integrations.situations import Driver, Outcome, Shop, Situations

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
        name = self.options.pop("agent", None)
        self.agent = bylaw.integrations.openai_agents(self.guard, plain, name=name, **self.options)
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
    def look() -> str:
        return shop.run("look")

    def drop() -> str:
        return shop.run("drop")

    def wipe() -> str:
        return shop.run("wipe")

    async def delegate() -> str:
        return await shop.delegate()

    def pay(amount: int, note: str = "") -> str:
        return shop.run("pay", amount=amount)

    def book(seat: int) -> str:
        return shop.run("book", seat=seat)

    return [agents.function_tool(one, strict_mode=False) for one in (look, drop, wipe, delegate, pay, book)]


class TestOpenAIAgents(Situations):
    driver = OpenAIAgentsDriver
