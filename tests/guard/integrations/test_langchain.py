"""LangGraph: real runs of a graph whose `ToolNode` the guard wraps; LangChain: an agent of `create_agent`."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="the frameworks extra is not installed")

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool as as_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

import bylaw
from tests.guard.integrations.situations import Driver, Outcome, Shop, Situations

_ids = itertools.count()


class ScriptedModel(BaseChatModel):
    turns: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        calls = [{"name": tool, "args": given, "id": f"c{next(_ids)}"} for tool, given in next(self.turns, [])]
        said = AIMessage(content="" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


class LangGraphDriver(Driver):
    """A graph of a model node and a tool node, run without asyncio."""

    def start(self) -> Outcome:
        self.middleware = bylaw.integrations.langchain(self.guard, **self.options)
        self.graph = self.build(ScriptedModel(turns=iter(self.turns)), tools_of(self.shop))
        return self.run({"messages": [("user", "go")]})

    async def astart(self) -> Outcome:
        return await asyncio.to_thread(self.start)

    def build(self, model: Any, tools: list[Any]) -> Any:
        def ask(state: Any, runtime: Any = None) -> Any:
            said = model.invoke(state["messages"])
            self.middleware.after_model({"messages": [said]}, runtime)
            return {"messages": [said]}

        node = ToolNode(
            tools, wrap_tool_call=self.middleware.wrap_tool_call, awrap_tool_call=self.middleware.awrap_tool_call
        )
        builder = StateGraph(MessagesState)
        builder.add_node("model", ask)
        builder.add_node("tools", node)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        return builder.compile(checkpointer=InMemorySaver())

    def run(self, given: Any) -> Outcome:
        return self.outcome(self.graph.invoke(given, {"configurable": {"thread_id": "t"}}))

    def outcome(self, state: Any) -> Outcome:
        results = [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]
        waits = [one.value["review"] for one in state.get("__interrupt__", ())]
        return Outcome(results, waits, None if waits else state["messages"][-1].content)

    def approve(self, review: str) -> Outcome:
        return self.run(Command(resume={"review": review, "type": "approve", "by": "ann"}))

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        return self.run(Command(resume={"review": review, "type": "edit", "arguments": arguments, "by": "ann"}))

    def reject(self, review: str) -> Outcome:
        return self.run(Command(resume={"review": review, "type": "reject", "by": "ann"}))


class AsyncLangGraphDriver(LangGraphDriver):
    def run(self, given: Any) -> Outcome:
        return self.outcome(asyncio.run(self.graph.ainvoke(given, {"configurable": {"thread_id": "t"}})))


class LangChainDriver(LangGraphDriver):
    def build(self, model: Any, tools: list[Any]) -> Any:
        from langchain.agents import create_agent

        return create_agent(model, tools, middleware=[self.middleware], checkpointer=InMemorySaver())


def tools_of(shop: Shop) -> list[Any]:
    @as_tool
    def look() -> str:
        """Look."""
        return shop.run("look")

    @as_tool
    def drop() -> str:
        """Drop."""
        return shop.run("drop")

    @as_tool
    def wipe() -> str:
        """Wipe."""
        return shop.run("wipe")

    @as_tool
    def delegate() -> str:
        """Delegate."""
        return asyncio.run(shop.delegate())

    @as_tool
    def pay(amount: int) -> str:
        """Pay."""
        return shop.run("pay", amount=amount)

    @as_tool
    def book(seat: int) -> str:
        """Book."""
        return shop.run("book", seat=seat)

    return [look, drop, wipe, delegate, pay, book]


class TestLangGraph(Situations):
    driver = LangGraphDriver


class TestLangGraphWithAsyncio(Situations):
    driver = AsyncLangGraphDriver


@pytest.mark.skipif(importlib.util.find_spec("langchain") is None, reason="langchain is not installed")
class TestLangChain(Situations):
    driver = LangChainDriver
