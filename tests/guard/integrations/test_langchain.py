"""LangGraph: real runs of a graph whose `ToolNode` the guard wraps; LangChain: an agent of `create_agent`."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="the frameworks extra is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool as as_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

import bylaw
from tests.guard.integrations.situations import RULES, Driver, Outcome, Shop, Situations, run_page

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
        return create_agent(model, tools, middleware=[self.middleware], checkpointer=InMemorySaver())


class AsyncLangChainDriver(AsyncLangGraphDriver, LangChainDriver):
    pass


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


class TestLangChain(Situations):
    driver = LangChainDriver


class TestLangChainWithAsyncio(Situations):
    driver = AsyncLangChainDriver


@pytest.mark.parametrize("order", [(500, 900), (900, 500)])
def test_answers_to_two_calls_of_one_task_find_their_reviews(order: Any) -> None:
    """LangGraph hands out answers by their order, whichever call asks first."""
    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        running = AsyncLangGraphDriver(guard, shop, [[("pay", {"amount": 500}), ("pay", {"amount": 900})]])
        running.start()
        first, second = (next(one.id for one in guard.reviews.list() if one.arguments["amount"] == n) for n in order)
        assert running.reject(first).answer is None
        assert running.approve(second).answer == "done"
    assert shop.runs == [("pay", {"amount": order[1]})]


def test_two_calls_of_one_task_are_answered_one_by_one() -> None:
    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        running = LangGraphDriver(guard, shop, [[("pay", {"amount": 500}), ("pay", {"amount": 900})]])
        outcome = running.start()
        while outcome.reviews:
            review = guard.reviews.get(outcome.reviews[0])
            assert review is not None
            answer = running.approve if review.arguments["amount"] == 900 else running.reject
            outcome = answer(review.id)
    assert outcome.answer == "done" and shop.runs == [("pay", {"amount": 900})]


@pytest.mark.parametrize("driver", [LangGraphDriver, AsyncLangGraphDriver])
def test_a_model_that_uses_an_id_for_several_calls(driver: type[LangGraphDriver], monkeypatch: Any) -> None:
    monkeypatch.setitem(globals(), "_ids", itertools.repeat(0))
    shop = Shop()
    turns = [[("look", {}), ("pay", {"amount": 5})], [("drop", {})], [("drop", {})], [("look", {})]]
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        outcome = driver(guard, shop, turns).start()
    assert len(shop.runs) == 1, "the guard refuses an id that was used"
    assert outcome.answer == "done"
    assert sorted(one[:18] for one in outcome.results)[-2:] == ["the call id `c0` i"] * 2


@pytest.mark.parametrize(
    "given", [True, "approve", {"type": "approve"}, {"review": "review-0", "type": "approve"}, {"type": "edit"}]
)
def test_an_answer_that_names_no_review_leaves_the_call_waiting(given: Any) -> None:
    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        running = LangGraphDriver(guard, shop, [[("pay", {"amount": 500})]])
        (review,) = running.start().reviews
        assert running.run(Command(resume=given)).reviews == [review] and shop.runs == []
        assert running.approve(review).answer == "done"


def test_after_a_restart_no_call_of_a_resumed_task_runs_twice(tmp_path: Path) -> None:
    shop = Shop()
    with bylaw.Guard({"guard": RULES}, store=tmp_path / "g.db") as guard, guard.session("s"):
        running = LangGraphDriver(guard, shop, [[("look", {}), ("pay", {"amount": 500})]])
        (review,) = running.start().reviews
        running.middleware._made.clear()  # as in a process that has not seen the calls
        running.middleware.calls._waiting.clear()
        outcome = running.approve(review)
    assert sorted(shop.runs) == [("look", {}), ("pay", {"amount": 500})]
    assert outcome.results[0].startswith("the call id") and outcome.results[1] == "pay done"


def test_the_thread_is_the_session_if_none_is_entered() -> None:
    with bylaw.Guard({"guard": RULES}) as guard:
        LangGraphDriver(guard, Shop(), [[("book", {"seat": 1})]]).start()
        assert not guard.decide(bylaw.Attempt(tool="book", session="t"))


def agent_of(shop: Shop, turn: Any, *middleware: Any) -> Any:
    model = ScriptedModel(turns=iter([[turn]]))
    return create_agent(model, tools_of(shop), middleware=middleware, checkpointer=InMemorySaver())


GO = ({"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}})


def test_arguments_that_an_earlier_middleware_changes_are_judged_as_they_run() -> None:
    class More(AgentMiddleware):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tool_call={**request.tool_call, "args": {"amount": 500}}))

    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        agent = agent_of(shop, ("pay", {"amount": 5}), More(), bylaw.integrations.langchain(guard))
        assert agent.invoke(*GO)["__interrupt__"][0].value["arguments"] == {"amount": 500}
    assert shop.runs == []


def test_a_retry_of_an_earlier_middleware_runs_nothing_without_a_decision() -> None:
    class Full(Shop):
        def run(self, tool: str, **arguments: Any) -> str:
            super().run(tool, **arguments)
            raise ValueError("no seat")

    shop = Full()
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        retry = ToolRetryMiddleware(max_retries=2, initial_delay=0)
        state = agent_of(shop, ("look", {}), retry, bylaw.integrations.langchain(guard)).invoke(*GO)
    assert len(shop.runs) == 1 and "is already used" in state["messages"][-2].content


def test_streaming() -> None:
    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
        list(agent_of(shop, ("drop", {}), bylaw.integrations.langchain(guard)).stream(*GO))
    assert shop.runs == []


def test_the_three_lines_of_the_overview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @as_tool
    def issue_refund(amount: float) -> str:
        """Pays."""
        raise AssertionError("it must not run")

    model = ScriptedModel(turns=iter([[("issue_refund", {"amount": 5.0})]]))
    names = {"bylaw": bylaw, "create_agent": create_agent, "model": model, "tools": [issue_refund]}
    state = run_page("README", tmp_path, monkeypatch, **names)["state"]
    assert state["messages"][-1].content == "done"
    assert state["messages"][-2].content.startswith("the customer has to confirm the amount first")


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("langchain", tmp_path, monkeypatch)
