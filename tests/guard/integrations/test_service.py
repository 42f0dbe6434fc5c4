"""Adapters whose guard is a service: agents of two frameworks, and a real `bylaw guard serve`."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="the frameworks extra is not installed")
pytest.importorskip("pydantic_ai", reason="the frameworks extra is not installed")

import bylaw
from bylaw.guard.integrations.calls import Calls
from bylaw.guard.reviews import NotAnswered
from bylaw.guard.service.auth import Credentials
from bylaw.guard.service.client import GuardClient
from bylaw.guard.stores import SqliteStore
from tests.guard.integrations.situations import RULES, Call, Driver, Shop
from tests.guard.integrations.test_langchain import AsyncLangChainDriver, LangGraphDriver
from tests.guard.integrations.test_pydantic_ai import PydanticAIDriver

_sessions = itertools.count()


class Service:
    """The process, its store, and a client with the key of the agent `desk`."""

    def __init__(self, folder: Path) -> None:
        (folder / "guard.yaml").write_text(json.dumps({"guard": RULES}))
        self.store = SqliteStore(folder / "guard.db")
        self.key, _ = Credentials(self.store).create("bot", ["agent"], agents=["desk"])
        command = [*(sys.executable, "-m", "bylaw", "guard", "serve", "-p", "guard.yaml", "--store", "guard.db")]
        self.process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--no-console"], cwd=folder, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.guard = GuardClient(self.process.stderr.readline().split()[-1], key=self.key, timeout=30)
        self.people = bylaw.Guard({"guard": RULES}, store=self.store).reviews

    def close(self) -> None:
        self.guard.close()
        self.process.terminate()
        self.process.communicate()
        self.store.close()

    @contextmanager
    def agent(self, driver: type[Driver], *turns: list[Call], **more: Any) -> Iterator[tuple[Any, Shop]]:
        shop = Shop()
        with self.guard.session(f"s{next(_sessions)}"):
            yield driver(self.guard, shop, list(turns), agent="desk", **more), shop


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    found = Service(tmp_path_factory.mktemp("service"))
    yield found
    found.close()


@pytest.fixture(params=[LangGraphDriver, AsyncLangChainDriver, PydanticAIDriver])
def driver(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_calls_are_decided_and_recorded_there(service: Service, driver: type[Driver]) -> None:
    turns: list[list[Call]] = [[("look", {})], [("drop", {})], [("book", {"seat": 1}), ("book", {"seat": 2})]]
    with service.agent(driver, *turns) as (agent, shop):
        before = service.store.last_event()
        outcome = agent.start()
    assert [tool for tool, _ in shop.runs] == ["look", "book"] and outcome.answer == "done"
    assert outcome.results[0] == "look done" and "tables stay" in outcome.results[1]
    assert any("one booking" in result for result in outcome.results[2:])
    rows = service.store.events(after=before)
    assert [row.data["content"] for row in rows if row.kind == "result"] == ["look done", "book done"]


def test_a_session_that_is_over_ends_the_agent(service: Service, driver: type[Driver]) -> None:
    with service.agent(driver, [("wipe", {})]) as (agent, shop), pytest.raises(bylaw.Denied, match="it is over"):
        agent.start()
    assert shop.runs == []


@pytest.mark.parametrize("answer", ["approve", "edit", "reject"])
def test_a_person_answers_at_the_service(service: Service, driver: type[Driver], answer: str) -> None:
    with service.agent(driver, [("pay", {"amount": 500})]) as (agent, shop):
        [review] = agent.start().reviews
        assert shop.runs == []
        if answer == "reject":
            service.people.reject(review, by="ann", note="not today")
        else:
            edited = {"tool": "pay", "arguments": {"amount": 400}} if answer == "edit" else None
            service.people.approve(review, by="ann", edited=edited)
        outcome = agent.approve(review)
    if answer == "reject":
        assert shop.runs == [] and "not today" in outcome.results[0]
    else:
        assert shop.runs == [("pay", {"amount": 400 if edited else 500})] and outcome.results == ["pay done"]


def test_an_agent_cannot_approve_its_own_call(service: Service, driver: type[Driver]) -> None:
    with service.agent(driver, [("pay", {"amount": 500})]) as (agent, shop):
        [review] = agent.start().reviews
        agent.approve(review)
        for answer in (service.guard.reviews.approve, service.guard.reviews.reject):
            with pytest.raises(NotAnswered, match="console"):
                answer(review, by="desk")
        found = service.people.get(review)
    assert shop.runs == [] and found is not None and found.status == "pending"


def test_a_call_that_was_rejected_in_the_program_does_not_run(service: Service, driver: type[Driver]) -> None:
    with service.agent(driver, [("pay", {"amount": 500})]) as (agent, shop):
        [review] = agent.start().reviews
        outcome = agent.reject(review)
    assert shop.runs == [] and outcome.answer == "done"


def test_a_call_can_wait_for_an_answer(service: Service) -> None:
    with service.guard.session(f"s{next(_sessions)}"):
        calls = Calls(service.guard, agent="desk", wait=20)
        attempt = calls.attempt("pay", {"amount": 500}, None, None, None)
        review = calls.decide(attempt).review
        assert review is not None and calls.is_listed("pay"), "what is listed only the service knows"
        service.people.approve(review, by="ann")
        assert service.guard.reviews.wait(review, timeout=120).status == "approved"
        assert service.guard.reviews.get("review-none") is None


def test_without_the_service_no_tool_runs(tmp_path: Path) -> None:
    away = Service(tmp_path)
    away.process.kill()
    away.process.wait()
    for driver in (LangGraphDriver, PydanticAIDriver):
        with away.agent(driver, [("look", {})]) as (agent, shop):
            outcome = agent.start()
        assert shop.runs == [] and "cannot be reached" in outcome.results[0]
    away.close()
