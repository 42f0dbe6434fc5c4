"""An agent that is down for every run is given up soon, with the reason; one that only fails at times is not."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bylaw.contract.agents import external_agent
from bylaw.contract.job import run_on_agent
from bylaw.contract.live_agent import Failure
from bylaw.contract.model import AgentSpec
from bylaw.contract.results import CellOutcome
from bylaw.contract.runs import GIVE_UP_AFTER
from tests.contract.scripted import CALM, TOOLS, ScriptedAgent, contract, invariant

DOWN = Failure("down", "connection refused")
PROMPTS = [str(n) for n in range(10)]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_given_up_after_the_first_runs(concurrency: int) -> None:
    agent = ScriptedAgent(lambda *_: DOWN, concurrency=concurrency, has_reset=concurrency == 1)
    report = run_on_agent(contract(scenarios=[CALM, TOOLS], prompts=PROMPTS), agent)
    assert report.exit_code == 4
    assert report.stopped == "the first 3 runs found the agent down: connection refused"
    assert GIVE_UP_AFTER <= report.agent_runs < GIVE_UP_AFTER + concurrency
    assert len(agent.asked) < len(PROMPTS)
    assert {cell.outcome for cell in report.cells} == {CellOutcome.ERROR}
    assert agent.log[-1] == "stop"


@pytest.mark.parametrize("up", range(GIVE_UP_AFTER))
def test_an_agent_that_was_up_once_is_asked_to_the_end(up: int) -> None:
    agent = ScriptedAgent(lambda *_: "hi" if len(agent.asked) == up + 1 else DOWN, has_reset=True)
    report = run_on_agent(contract(prompts=PROMPTS), agent)
    assert (report.exit_code, report.stopped, len(agent.asked)) == (4, None, len(PROMPTS))


@pytest.mark.parametrize("kind", ["timeout", "crash", "error", "bad_answer"])
def test_other_failures_are_judged_one_by_one(kind: str) -> None:
    agent = ScriptedAgent(lambda *_: Failure(kind, "why"), has_reset=True)  # type: ignore[arg-type]
    assert run_on_agent(contract(invariant(), prompts=PROMPTS), agent).stopped is None
    assert len(agent.asked) == len(PROMPTS)


@pytest.fixture
def full() -> Iterator[str]:
    """An address that takes no more connections, and refuses none either."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}/"
        for one in waiting:
            one.close()


def test_an_address_that_does_not_answer_is_down(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the time that the agent may take to answer is not waited for."""
    monkeypatch.setattr(external_agent, "CONNECT_WITHIN", 0.2)
    agent = external_agent.HttpAgent(AgentSpec(type="http", endpoint=full, timeout_ms=300_000))
    report = run_on_agent(contract(prompts=PROMPTS), agent)
    assert (report.exit_code, report.agent_runs) == (4, GIVE_UP_AFTER)
    assert report.stopped is not None
    assert "cannot connect" in report.stopped
