"""Python agents that need more than a prompt: factories, configuration, dependencies, states of their own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel

from bylaw.contract.file.loader import parse_contract
from bylaw.contract.live_agent import AgentUnreachable
from tests.live.python.support import MODULE, ask


class Desk(TypedDict):
    question: str
    region: str
    reply: str


def _graph(state: Any, node: Any, **compiled: Any) -> Any:
    from langgraph.graph import START, StateGraph

    graph = StateGraph(state)
    graph.add_node("answer", node)
    graph.add_edge(START, "answer")
    return graph.compile(**compiled)


def remembers() -> Any:
    """A graph that stores conversations: it counts the messages of its thread."""
    from langgraph.checkpoint.memory import MemorySaver
    from langgraph.graph import MessagesState

    def answer(state: Any, config: RunnableConfig) -> Any:
        thread = config["configurable"]["thread_id"]
        return {"messages": [("ai", f"{len(state['messages'])} in {'mine' if thread == 'mine' else 'its own'}")]}

    return _graph(MessagesState, answer, checkpointer=MemorySaver())


def test_a_graph_with_a_checkpointer_has_a_thread_for_each_run() -> None:
    graph = remembers()
    assert [ask(graph).answer for _ in range(2)] == ["1 in its own"] * 2


def test_a_graph_is_configured_as_the_file_says() -> None:
    assert ask(remembers(), config={"configurable": {"thread_id": "mine"}}).answer == "1 in mine"


def test_a_graph_with_a_state_of_its_own_is_asked_with_a_template() -> None:
    graph = _graph(Desk, lambda state: {"reply": f"{state['question']} in {state['region']}"})
    template = '{"question": "{prompt}", "region": "north"}'
    run = ask(graph, prompt='Where is "A"?', request_template=template, response_path="reply")
    assert run.answer == 'Where is "A"? in north'


@dataclass
class Shop:
    name: str
    stock: int = 0


def _with_deps() -> Any:
    agent = Agent(TestModel(), deps_type=Shop)

    @agent.tool
    def stock(ctx: RunContext[Shop]) -> str:
        return f"{ctx.deps.stock} at {ctx.deps.name}"

    return agent


def a_shop() -> Shop:
    return Shop("Bern", 7)


async def a_shop_later() -> Shop:
    return a_shop()


@contextlib.contextmanager
def an_open_shop() -> Iterator[Shop]:
    yield a_shop()


@contextlib.asynccontextmanager
async def an_agent_that_is_open() -> AsyncIterator[Any]:
    yield _with_deps()


@pytest.mark.parametrize("deps", [{"name": "Bern", "stock": 7}, f"{__name__}:a_shop", f"{__name__}:a_shop_later"])
def test_pydantic_ai_gets_its_dependencies(deps: Any) -> None:
    assert ask(_with_deps(), deps=deps).answer == '{"stock":"7 at Bern"}'


def test_a_factory_makes_an_agent_for_each_run() -> None:
    import asyncio

    from bylaw.contract.faults import Injection
    from tests.live.python.support import started

    count = itertools.count(1)

    def make() -> Any:
        number = next(count)
        return lambda prompt: f"agent {number}"

    async def twice() -> list[str | None]:
        async with started(make, factory=True) as live:
            return [(await live.run("go", Injection(run=f"run {at}"))).answer for at in range(2)]

    assert asyncio.run(twice()) == ["agent 2", "agent 3"], "the first one told which tools there are"


def test_a_function_gets_what_it_takes() -> None:
    def agent(prompt: str, config: dict[str, Any], deps: Any) -> str:
        return f"{prompt} {config['mode']} {deps['shop']}"

    assert ask(agent, prompt="hi", config={"mode": "short"}, deps={"shop": "Bern"}).answer == "hi short Bern"


def test_a_function_gets_dependencies_that_are_made_asynchronously() -> None:
    async def later(prompt: str, deps: Shop) -> str:
        return f"{prompt} {deps.name}"

    for agent in (later, lambda prompt, deps: f"{prompt} {deps.name}"):
        assert ask(agent, prompt="hi", deps=f"{__name__}:a_shop_later").answer == "hi Bern"


@pytest.mark.parametrize(
    ("agent", "keys", "reason"),
    [
        (lambda prompt: "x", {"deps": {"a": 1}}, "does not take what the contract gives it"),
        ("text", {"factory": True}, "no function that makes an agent"),
        (lambda: 1 / 0, {"factory": True}, "failed: ZeroDivisionError"),
        (an_agent_that_is_open, {"factory": True}, "yields the agent, as a context manager does"),
        (lambda: "x", {}, "takes no prompt; write `factory: true`"),
        (_with_deps(), {"deps": {"nme": "Bern"}}, "does not fit `Shop`: .*'name'"),
        (_with_deps(), {"deps": f"{__name__}:an_open_shop"}, "yields the dependencies"),
        (_with_deps(), {"config": {"nonsense": 1}}, "unexpected keyword argument 'nonsense'"),
    ],
)
def test_what_does_not_fit_is_said(agent: Any, keys: dict[str, Any], reason: str) -> None:
    import sys
    import types

    module = types.ModuleType(MODULE)
    module.agent = agent  # type: ignore[attr-defined]
    sys.modules[MODULE] = module
    with pytest.raises(AgentUnreachable, match=reason):
        ask(f"{MODULE}:agent", **keys)


def test_the_keys_in_a_file() -> None:
    text = """
contract: {name: c, invariants: [{id: i, type: completes}]}
chaos_matrix: [{name: calm}]
agent: {endpoint: "desk:make", factory: true, config: {configurable: {thread_id: t}}, deps: "desk:shop"}
golden_prompts: [hi]
"""
    file = parse_contract(text, base=Path())
    assert file.contract is not None and not file.diagnostics
    agent = file.contract.agent
    assert (agent.factory, agent.config, agent.deps) == (True, {"configurable": {"thread_id": "t"}}, "desk:shop")
