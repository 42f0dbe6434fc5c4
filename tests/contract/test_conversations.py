"""Golden prompts of several messages: each agent shows which messages it was told."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.contract import model as checks
from bylaw.contract.agents.prompts import (
    Dialogue,
    prompt_request,
    talk_to_graph,
    talk_with_history,
    why_no_conversation,
)
from bylaw.contract.commands import RENDERERS
from bylaw.contract.faults import Injection
from bylaw.contract.file.loader import parse_contract
from bylaw.contract.job import run_on_agent
from bylaw.contract.judge import Judge
from bylaw.contract.live_agent import AgentRun, check_conversations
from bylaw.contract.model import AgentSpec, Conversation, messages_of
from bylaw.contract.results import CellOutcome
from bylaw.errors import InputError
from bylaw.model.events import Message
from bylaw.text.similarity import Lexicon
from tests.contract.scripted import ScriptedAgent, contract, invariant, ran
from tests.live.python.support import started

TALK = Conversation(["Where is order A-17?", "Refund it.", "Thanks!"])


@bylaw.tool
def refund(order: str) -> str:
    return f"refunded {order}"


def converse(agent: Any, **options: Any) -> AgentRun:
    async def once() -> AgentRun:
        async with started(agent, **options) as live:
            assert live.why_no_conversation() is None
            run: AgentRun = await live.run(TALK, Injection(run="run"))
            return run

    return asyncio.run(once())


def test_a_function_gets_the_history() -> None:
    reported: list[list[str]] = []

    def agent(prompt: str, history: list[dict[str, str]]) -> str:
        reported.append([*(f"{one['role']}: {one['content']}" for one in history), prompt])
        return refund("A-17") if "Refund" in prompt else f"answer {len(reported)}"

    run = converse(agent)
    assert [len(one) for one in reported] == [1, 3, 5]
    assert reported[2] == [
        "user: Where is order A-17?",
        "assistant: answer 1",
        "user: Refund it.",
        "assistant: refunded A-17",
        "Thanks!",
    ]
    assert (run.answers, run.answer) == (("answer 1", "refunded A-17"), "answer 3")
    said = [(event.role, event.content) for event in run.trace.events if isinstance(event, Message)]
    assert ("user", "Refund it.") in said and ("user", "Thanks!") in said
    assert [event.name for event in run.trace.events if event.kind == "tool_call"] == ["refund"]  # type: ignore[attr-defined]


def test_an_async_function_gets_one_session_for_each_run() -> None:
    sessions: list[str] = []

    async def agent(prompt: str, session_id: str) -> str:
        sessions.append(session_id)
        return prompt

    converse(agent)
    converse(agent)
    assert len(sessions) == 6 and len(set(sessions[:3])) == 1 and sessions[0] != sessions[3]


def test_a_factory_makes_one_agent_for_each_conversation() -> None:
    made: list[list[str]] = []

    def make() -> Any:
        heard: list[str] = []
        made.append(heard)
        return lambda prompt: heard.append(prompt) or str(len(heard))

    assert converse(make, factory=True).answer == "3"
    assert made[-1] == list(TALK.messages)


def test_a_conversation_ends_with_the_first_failure() -> None:
    def agent(prompt: str, history: list[Any]) -> str:
        if history:
            raise ValueError("lost")
        return "first"

    run = converse(agent)
    assert run.answers == ("first",) and run.failure is not None and "lost" in run.failure.reason


def test_validate_names_the_prompts_that_an_agent_cannot_be_asked() -> None:
    text = """
contract: { name: c, invariants: [{ id: a, type: completes }] }
chaos_matrix: [{ name: calm }]
agent: { endpoint: "m:f" }
golden_prompts:
  - plain
  - [one, two]
  - { prompt: [three, four], dangerous: true }
  - [alone]
"""
    contract = parse_contract(text).contract
    assert contract is not None
    assert [messages_of(prompt.text) for prompt in contract.prompts] == [
        ("plain",),
        ("one", "two"),
        ("three", "four"),
        ("alone",),
    ]

    async def once() -> list[int]:
        async with started(lambda prompt: prompt) as live:
            with pytest.raises(InputError) as problem:
                check_conversations(contract, live)
            return [one.span.line for one in problem.value.diagnostics if one.span]

    assert asyncio.run(once()) == [7, 8]


def test_templates_carry_the_conversation() -> None:
    dialogue = Dialogue()
    dialogue.add("one", 'say "hi"')
    spec = AgentSpec(
        type="http",
        endpoint="http://x",
        request_template='{"messages": "{messages}", "id": "{session}", "log": "earlier: {history}", "q": "{prompt}"}',
    )
    sent = json.loads(prompt_request(spec, "two", dialogue.values("two")).body or b"")
    earlier = [{"role": "user", "content": "one"}, {"role": "assistant", "content": 'say "hi"'}]
    assert sent["messages"] == [*earlier, {"role": "user", "content": "two"}]
    assert (sent["id"], sent["q"]) == (dialogue.session, "two")
    assert json.loads(sent["log"].removeprefix("earlier: ")) == earlier
    assert why_no_conversation(spec) is None


@pytest.mark.parametrize(
    ("fields", "can"),
    [
        ({"type": "http", "endpoint": "http://x"}, False),
        ({"type": "http", "endpoint": "http://x", "reset_endpoint": "http://x/reset"}, True),
        ({"type": "http", "endpoint": "http://x", "query_params": {"s": "{session}"}}, True),
        ({"type": "command", "command": ("agent", "{prompt}")}, False),
        ({"type": "command", "command": ("agent", "--session={session}")}, True),
    ],
)
def test_who_can_be_given_the_earlier_messages(fields: dict[str, Any], can: bool) -> None:
    assert (why_no_conversation(AgentSpec(**fields)) is None) is can


def test_a_command_gets_the_history_as_an_argument(tmp_path: Path) -> None:
    from bylaw.contract.agents.external_agent import CommandAgent

    code = "import json,sys; print(len(json.loads(sys.argv[1])), sys.stdin.read())"
    spec = AgentSpec(type="command", command=(sys.executable, "-c", code, "{history}"))

    async def once() -> AgentRun:
        agent = CommandAgent(spec, base=tmp_path)
        await agent.start()
        try:
            return await agent.run(Conversation(["a", "b"]), Injection(run="run"))
        finally:
            await agent.stop()

    run = asyncio.run(once())
    assert (run.answers, run.answer) == (("0 a",), "2 b"), run.failure


def test_graphs_and_agents_of_frameworks_get_all_messages() -> None:
    """In the forms that LangGraph and the OpenAI Agents SDK have; their real agents are in `tests/live`."""
    asked: list[Any] = []

    async def invoke(state: Any, config: dict[str, Any], _given: dict[str, Any]) -> Any:
        asked.append((state, config))
        return {"messages": [*state["messages"], "answer"]}

    class Graph:
        checkpointer: Any = None

    start = talk_to_graph(Graph(), invoke, lambda prompt: {"messages": [("user", prompt)]}, {})
    assert start is not None
    talk = start()
    for message in ("a", "b"):
        asyncio.run(talk(message))
    assert [len(state["messages"]) for state, _ in asked] == [1, 3]
    assert talk_to_graph(Graph(), invoke, lambda prompt: prompt, {}) is None

    class Result:
        def __init__(self, given: list[Any]) -> None:
            self.given = given

        def to_input_list(self) -> list[Any]:
            return [*self.given, {"role": "assistant", "content": "x"}]

    async def run(prompt: str, earlier: list[Any]) -> Result:
        return Result([*earlier, {"role": "user", "content": prompt}])

    async def nothing() -> dict[str, Any]:
        return {}

    talk = talk_with_history(run, "to_input_list", nothing)()
    asyncio.run(talk("a"))
    assert len(asyncio.run(talk("b")).given) == 3


JUDGE = Judge(Lexicon(()), 1000)


@pytest.mark.parametrize(
    ("check", "negate", "outcome"),
    [
        (checks.NoPii(), False, CellOutcome.VIOLATED),
        (checks.Excludes(("jo@example",)), False, CellOutcome.VIOLATED),
        (checks.Contains(("jo@example",)), True, CellOutcome.VIOLATED),
        (checks.Contains(("bye",)), False, CellOutcome.OK),
        (checks.Contains(("jo@example",)), False, CellOutcome.VIOLATED),
        (checks.NotEmpty(), False, CellOutcome.OK),
    ],
)
def test_what_must_not_be_said_is_looked_for_in_every_answer(check: Any, negate: bool, outcome: CellOutcome) -> None:
    from msgspec.structs import replace

    run = replace(ran("bye"), answers=("write to jo@example.com", "ok"))
    judged = JUDGE.judge(invariant(check=check, negate=negate), run)
    assert judged.outcome is outcome
    in_earlier = outcome is CellOutcome.VIOLATED and (negate or not isinstance(check, checks.Contains))
    assert judged.found.startswith("answer 1 of 3") is in_earlier


def test_the_evidence_holds_every_answer_of_a_conversation() -> None:
    from msgspec.structs import replace

    key = "sk-proj-" + "a1B2c3D4" * 6
    run = replace(ran("bye"), answers=(f"the key is {key}", "x" * 2_000))
    report = run_on_agent(contract(prompts=[TALK]), ScriptedAgent(lambda prompt, injection: run))
    (cell,) = json.loads(RENDERERS["json"](report))["cells"]
    (evidence,) = cell["evidence"]
    assert evidence["answer"] == "bye"
    first, second = evidence["earlier_answers"]
    assert first.startswith("the key is [redacted") and key not in first
    assert second == "x" * 999 + "…"
