"""Conversations with agents of real frameworks: each answers how many messages it was told."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from bylaw.contract.faults import Injection
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.model import Conversation
from tests.live.python.support import started
from tests.live.python.test_setup import _graph, remembers

TALK = Conversation(["a", "b", "c"])


def answers(agent: Any, **options: Any) -> tuple[str, ...]:
    async def once() -> AgentRun:
        async with started(agent, **options) as live:
            assert live.why_no_conversation() is None
            run: AgentRun = await live.run(TALK, Injection(run="run"))
            return run

    run = asyncio.run(once())
    assert run.failure is None, run.failure
    return (*run.answers, str(run.answer))


def test_a_graph_with_a_checkpointer_gets_the_same_thread() -> None:
    graph = remembers()
    for _ in range(2):  # and another thread in the next run
        assert answers(graph) == ("1 in its own", "3 in its own", "5 in its own")


def test_a_graph_without_one_gets_all_messages() -> None:
    from langgraph.graph import MessagesState

    graph = _graph(MessagesState, lambda state: {"messages": [("ai", str(len(state["messages"])))]})
    assert answers(graph) == ("1", "3", "5")


def test_an_agent_of_pydantic_ai_gets_its_history() -> None:
    def reply(messages: list[Any], _info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart(str(len(messages)))])

    assert answers(Agent(FunctionModel(reply))) == ("1", "3", "5")


shops = itertools.count(1)


def a_shop() -> int:
    return next(shops)


def test_dependencies_are_made_once_for_a_conversation() -> None:
    def reply(_messages: list[Any], info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart(info.instructions)])

    agent = Agent(FunctionModel(reply), deps_type=int)

    @agent.instructions
    def instruct(context: RunContext[int]) -> str:
        return f"shop {context.deps}"

    said = [answers(agent, deps=f"{__name__}:a_shop") for _ in range(2)]
    assert [set(one) for one in said] == [{said[0][0]}, {said[1][0]}] and said[0] != said[1]


def test_a_graph_gets_its_context_once_for_a_conversation() -> None:
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.runtime import Runtime

    def answer(_state: Any, runtime: Runtime[int]) -> Any:
        return {"messages": [("ai", f"shop {runtime.context}")]}

    graph = StateGraph(MessagesState, context_schema=int)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    said = [answers(graph.compile(), deps=f"{__name__}:a_shop") for _ in range(2)]
    assert [len(set(one)) for one in said] == [1, 1] and said[0] != said[1]


def test_an_agent_of_the_openai_sdk_gets_its_items() -> None:
    import agents
    from agents.items import ModelResponse as Reply
    from agents.usage import Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    class Counting(agents.Model):
        async def get_response(self, system_instructions: Any, input: Any, *_args: Any, **_more: Any) -> Reply:
            text = ResponseOutputText(type="output_text", text=str(len(input)), annotations=[])
            said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
            return Reply(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_more: Any) -> Any:
            raise NotImplementedError

    agents.set_tracing_disabled(True)
    assert answers(agents.Agent(name="a", model=Counting())) == ("1", "3", "5")


def test_a_chain_that_takes_one_text_cannot_be_given_the_earlier_messages() -> None:
    async def once() -> str | None:
        async with started(RunnableLambda(str.upper)) as live:
            why: str | None = live.why_no_conversation()
            return why

    assert asyncio.run(once()) is not None


@pytest.mark.parametrize("messages", [["only"], ["one", "two"]])
def test_a_conversation_is_one_run_with_one_name(messages: list[str]) -> None:
    async def once() -> AgentRun:
        async with started(lambda prompt, session: f"{prompt}!") as live:
            run: AgentRun = await live.run(Conversation(messages), Injection(run="name"))
            return run

    run = asyncio.run(once())
    assert run.trace.name == "name" and run.answer == f"{messages[-1]}!"
