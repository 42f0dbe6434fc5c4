"""Every tool fault, for every way to call a tool: what the agent's call returns, and how often the fault is counted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from bylaw.contract.faults.live_run import ToolFailure
from bylaw.contract.file.faults import INSTRUCTION
from tests.live.python.callers import NAMED, OVER_HTTP, TIMEOUTS, is_json
from tests.live.python.support import ORDER, Served, ask, attack, nth, tool_fault

pytestmark = pytest.mark.sampled(2)

CALLERS = {**NAMED, **OVER_HTTP}
MODES = ("timeout", "error", "malformed", "slow", "malicious_response", "wrong_data", "empty", "stale")


class Watcher:
    """An agent that calls a tool several times and stores the results."""

    def __init__(self, caller: str, url: str, times: int = 1) -> None:
        self.seen: list[Any] = []
        self.took: list[float] = []
        self._call = CALLERS[caller]
        self._url = url
        self._times = times

    async def ainvoke(self, _prompt: str) -> str:
        for _ in range(self._times):
            began = time.perf_counter()
            try:
                self.seen.append(await self._call(self._url))
            except Exception as error:
                self.seen.append(error)
            self.took.append(time.perf_counter() - began)
        return "done"


def text_of(seen: Any) -> str:
    """The result as text, for named tools and for HTTP requests."""
    if isinstance(seen, tuple):
        return seen[1]
    return seen if isinstance(seen, str) else json.dumps(seen)


def value_of(seen: Any) -> Any:
    return json.loads(text_of(seen))


@pytest.mark.parametrize("caller", CALLERS)
def test_without_a_fault_the_call_is_what_it_was(caller: str, server: Served) -> None:
    agent = Watcher(caller, f"{server.url}/order")
    run = ask(agent)
    assert run.answer == "done" and run.failure is None
    assert value_of(agent.seen[0]) == ORDER


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("mode", MODES)
def test_the_agents_own_call_sees_the_fault(caller: str, mode: str, server: Served) -> None:
    agent = Watcher(caller, f"{server.url}/order")
    run = ask(agent, tool_fault(mode))
    assert run.answer == "done"
    assert run.fired == {"fault": 1}
    SEES[mode](caller, agent, server)


def _sees_timeout(caller: str, agent: Watcher, server: Served) -> None:
    assert isinstance(agent.seen[0], TIMEOUTS[caller])
    assert agent.took[0] >= 0.04
    assert server.asked == []


def _sees_error(caller: str, agent: Watcher, server: Served) -> None:
    if caller in NAMED:
        assert isinstance(agent.seen[0], ToolFailure)
        assert str(agent.seen[0]).startswith("503: ")
    else:
        assert agent.seen[0][0] == 503
        assert "error" in value_of(agent.seen[0])
    assert server.asked == []


def _sees_malformed(_caller: str, agent: Watcher, _server: Served) -> None:
    text = text_of(agent.seen[0])
    assert text and not is_json(text)
    assert json.dumps(ORDER).startswith(text)


def _sees_slow(_caller: str, agent: Watcher, _server: Served) -> None:
    assert value_of(agent.seen[0]) == ORDER
    assert agent.took[0] >= 0.04


def _sees_malicious(_caller: str, agent: Watcher, _server: Served) -> None:
    assert INSTRUCTION in text_of(agent.seen[0])
    assert "A-17" not in text_of(agent.seen[0])


def _sees_wrong_data(_caller: str, agent: Watcher, _server: Served) -> None:
    wrong = value_of(agent.seen[0])
    assert wrong.keys() == ORDER.keys()
    assert all(wrong[key] != ORDER[key] and type(wrong[key]) is type(ORDER[key]) for key in ORDER)


def _sees_empty(caller: str, agent: Watcher, _server: Served) -> None:
    assert agent.seen[0] == {} if caller in NAMED else agent.seen[0][1] == ""


def _sees_stale(_caller: str, agent: Watcher, _server: Served) -> None:
    assert value_of(agent.seen[0]) == {**ORDER, "updated_at": "2025-03-02"}


SEES = {
    "timeout": _sees_timeout,
    "error": _sees_error,
    "malformed": _sees_malformed,
    "slow": _sees_slow,
    "malicious_response": _sees_malicious,
    "wrong_data": _sees_wrong_data,
    "empty": _sees_empty,
    "stale": _sees_stale,
}


@pytest.mark.parametrize("caller", CALLERS)
def test_only_the_calls_that_timing_names_are_hit(caller: str, server: Served) -> None:
    agent = Watcher(caller, f"{server.url}/order", times=4)
    run = ask(agent, tool_fault("empty", timing=nth(2, 4)))
    assert run.fired == {"fault": 2}
    assert [text_of(seen) in ("", "{}") for seen in agent.seen] == [False, True, False, True]


@pytest.mark.parametrize("caller", OVER_HTTP)
def test_a_fault_on_a_url_hits_only_matching_requests(caller: str, server: Served) -> None:
    agent = Watcher(caller, f"{server.url}/order")
    fault = tool_fault("error", tool=None, match_url="*/order", error_code=418)
    assert ask(agent, fault).fired == {"fault": 1}
    assert agent.seen[0][0] == 418
    assert ask(agent, tool_fault("error", tool=None, match_url="*/other")).fired == {"fault": 0}


@pytest.mark.parametrize("caller", NAMED)
def test_a_fault_on_a_named_tool_hits_only_that_tool(caller: str) -> None:
    agent = Watcher(caller, "")
    assert ask(agent, tool_fault("error", tool="find_order*")).fired == {"fault": 1}
    assert ask(agent, tool_fault("error", tool="another")).fired == {"fault": 0}


@pytest.mark.parametrize("caller", ["aiohttp", "httpx", "httpx_async", "requests", "urllib3"])
def test_a_compressed_reply_is_altered_inside(caller: str, server: Served) -> None:
    agent = Watcher(caller, f"{server.url}/packed")
    assert ask(agent, tool_fault("wrong_data")).fired == {"fault": 1}
    assert value_of(agent.seen[0]).keys() == ORDER.keys()


@pytest.mark.parametrize("caller", CALLERS)
def test_an_injection_is_inside_the_result(caller: str, server: Served) -> None:
    agent = Watcher(caller, f"{server.url}/order")
    run = ask(agent, attack("indirect_injection", payloads=("EVIL",)))
    assert run.fired == {"fault": 1}
    assert value_of(agent.seen[0]).keys() == ORDER.keys()
    assert "EVIL" in text_of(agent.seen[0])


@pytest.mark.parametrize("caller", CALLERS)
def test_the_same_seed_gives_the_same_faults_three_times(caller: str, server: Served) -> None:
    from bylaw.contract.faults import Timing

    fault = tool_fault("wrong_data", timing=Timing(probability=0.5))
    reported = []
    for _ in range(3):
        agent = Watcher(caller, f"{server.url}/order", times=6)
        run = ask(agent, fault, seed=7)
        reported.append((run.fired, [text_of(seen) for seen in agent.seen]))
    assert reported[0] == reported[1] == reported[2]
    assert 0 < reported[0][0]["fault"] < 6


def test_another_seed_gives_other_faults(server: Served) -> None:
    def seen(seed: int) -> list[Any]:
        agent = Watcher("named_sync", "", times=8)
        ask(agent, tool_fault("wrong_data"), seed=seed)
        return agent.seen

    assert seen(1) != seen(2)


@pytest.mark.parametrize("caller", OVER_HTTP)
def test_a_library_with_a_shorter_timeout_than_the_fault_times_out_itself(
    caller: str, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.live.python.callers.WAIT", 0.1)
    agent = Watcher(caller, f"{server.url}/order")
    run = ask(agent, tool_fault("slow", delay_ms=6_000_000))
    assert isinstance(agent.seen[0], TIMEOUTS[caller])
    assert agent.took[0] < 600
    assert run.fired == {"fault": 1}


def test_stale_returns_the_first_result_again() -> None:
    import bylaw

    left = iter([{"price": 1}, {"price": 2}])
    seen = []

    @bylaw.tool
    def price() -> dict[str, int]:
        return next(left)

    def agent(_prompt: str) -> str:
        seen.extend([price(), price()])
        return "done"

    assert ask(agent, tool_fault("stale", timing=nth(2))).fired == {"fault": 1}
    assert seen == [{"price": 1}, {"price": 1}]


def test_a_fault_that_changes_nothing_did_not_fire() -> None:
    import bylaw

    @bylaw.tool
    def nothing() -> None:
        return None

    assert ask(lambda _prompt: str(nothing()), tool_fault("empty")).fired == {"fault": 0}
    assert ask(lambda _prompt: str(nothing()), tool_fault("stale")).fired == {"fault": 0}
