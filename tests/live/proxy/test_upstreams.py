"""Where requests to models go: to the address that the environment or the code names, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bylaw.contract.agents import open_agent
from bylaw.contract.agents.chaos_proxy import ProxiedRun
from bylaw.contract.agents.external_agent import ExternalAgent
from bylaw.contract.faults import AnyFault, Injection
from bylaw.contract.job import run_on_agent
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.model import AgentSpec, Completes
from bylaw.record.child import child_environment
from bylaw.wire.proxy.child_environment import Authority, named_addresses, proxy_variables
from tests.contract.scripted import contract, invariant
from tests.live.proxy.support import Seen, llm, server

NAMED = "https://models.example/team/llm/v1"
AGENT = """
import json, os, urllib.request
url = os.environ.get("OPENAI_BASE_URL", "{default}") + "/chat/completions"
body = json.dumps({{"model": "m", "messages": [{{"role": "user", "content": "our secret plan"}}]}}).encode()
try:
    reply = urllib.request.urlopen(urllib.request.Request(url, body, {{"authorization": "Bearer our-key"}}))
    print(json.load(reply)["choices"][0]["message"]["content"])
except Exception:
    print("I cannot answer now.")
"""


@pytest.fixture(autouse=True)
def _nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper() in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL") or name.upper().endswith(
            "_PROXY"
        ):
            monkeypatch.delenv(name)


def says(seen: Seen) -> tuple[int, str, bytes]:
    message = {"role": "assistant", "content": "All is well."}
    return 200, "application/json", json.dumps({"choices": [{"index": 0, "message": message}]}).encode()


def spec(code: str = "pass", **keys: Any) -> AgentSpec:
    return AgentSpec(type="command", command=(sys.executable, "-S", "-c", code), timeout_ms=60_000, **keys)


def ask(agent: AgentSpec, folder: Path, *faults: AnyFault) -> AgentRun:
    async def once() -> AgentRun:
        live = open_agent(agent, folder)
        await live.start()
        try:
            return await live.run("go", Injection(faults=faults, run="test"))
        finally:
            await live.stop()

    return asyncio.run(once())


@pytest.mark.parametrize("named", [{}, {"OPENAI_BASE_URL": NAMED}])
def test_a_recorded_command_keeps_a_base_url_that_nobody_names(tmp_path: Path, named: dict[str, str]) -> None:
    env = child_environment(
        named,
        proxy="http://p:1",
        named=named_addresses(named),
        authority=Authority.temporary(tmp_path),
        folder=tmp_path,
    )
    assert env.get("OPENAI_BASE_URL") == ("http://p:1/openai/team/llm/v1" if named else None)
    assert "ANTHROPIC_BASE_URL" not in env and env["HTTPS_PROXY"] == "http://p:1"


@pytest.mark.parametrize("path", ["/v1?version=2026&team=a%20b", "?version=2026", "/v1/?version=2026"])
def test_the_query_of_a_base_url_stays_as_it_is_named(tmp_path: Path, path: str) -> None:
    """A client appends its path to the whole address, so what arrives is what the server would get without us."""
    with server(says) as (url, seen):
        agent = spec(AGENT.format(default=""), env={"OPENAI_BASE_URL": f"{url}{path}"})
        ask(agent, tmp_path)
        named = named_addresses({"OPENAI_BASE_URL": f"{url}{path}"})
    assert [one["path"] for one in seen] == [f"{path if path.startswith('/') else '/' + path}/chat/completions"]
    assert named["openai"].path == path


@pytest.mark.parametrize(
    ("keys", "environment", "base", "upstream"),
    [
        ({}, {}, None, "https://api.openai.com"),
        ({}, {"OPENAI_BASE_URL": NAMED}, "/openai/team/llm/v1", "https://models.example"),
        ({"env": {"OPENAI_BASE_URL": NAMED}}, {}, "/openai/team/llm/v1", "https://models.example"),
        ({"upstreams": {"openai": "http://x.example"}}, {"OPENAI_BASE_URL": NAMED}, "/openai/v1", "http://x.example"),
    ],
)
def test_a_contract_honours_the_base_url_that_is_named(
    keys: dict[str, Any],
    environment: dict[str, str],
    base: str | None,
    upstream: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    async def go() -> tuple[str | None, str, str, dict[str, str]]:
        of_agent = ExternalAgent(spec(**keys), base=tmp_path)
        await of_agent.start()
        assert of_agent.proxy is not None
        try:
            run = ProxiedRun(Injection(run="test"), "go")
            env = of_agent.variables(run)
            return env.get("OPENAI_BASE_URL"), of_agent.proxy.url(run.token), of_agent.proxy._upstreams["openai"], env
        finally:
            await of_agent.stop()

    given, proxy, used, env = asyncio.run(go())
    assert given == (None if base is None else proxy + base)
    assert used == upstream
    assert env["NODE_USE_ENV_PROXY"] == "1", "a contract sets what a recording sets"


def test_a_default_in_the_code_is_the_upstream_and_faults_reach_it(tmp_path: Path) -> None:
    with server(says) as (url, seen):
        agent = spec(AGENT.format(default=f"{url}/v1"))
        calm = ask(agent, tmp_path)
        hit = ask(agent, tmp_path, llm("truncated_response", max_tokens=2))
    assert (calm.answer, calm.models) == ("All is well.", {url})
    assert hit.answer == "All is" and hit.fired == {"llm_faults[0]": 1}
    assert [one["headers"]["authorization"] for one in seen] == ["Bearer our-key"] * 2


def test_exceptions_are_about_the_users_proxy_and_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host in `NO_PROXY` is asked directly, and by us: faults reach it, and it is recorded."""
    with server(says) as (url, _), server() as (users_proxy, passed):
        monkeypatch.setenv("HTTP_PROXY", users_proxy)
        monkeypatch.setenv("ALL_PROXY", users_proxy)
        for excepted in ("127.0.0.1", "127.0.0.0/8", "*"):
            monkeypatch.setenv("NO_PROXY", excepted)
            run = ask(spec(AGENT.format(default=f"{url}/v1")), tmp_path, llm("truncated_response", max_tokens=2))
            assert (run.answer, run.fired) == ("All is", {"llm_faults[0]": 1}), excepted
        assert passed == []
        monkeypatch.setenv("NO_PROXY", "elsewhere.example")
        ask(spec(AGENT.format(default=f"{url}/v1")), tmp_path)
    assert [one["path"] for one in passed] == [f"{url}/v1/chat/completions"]


def test_no_variable_leads_past_the_proxy() -> None:
    own = {"ALL_PROXY": "socks5://x:1", "wss_proxy": "http://x:2", "NO_PROXY": "a.example", "ftp_proxy": "http://x:3"}
    env = {**own, **proxy_variables(own, "http://ours:1")}
    ours = {name for name, value in env.items() if value == "http://ours:1"}
    assert ours == {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "wss_proxy"}
    assert (env["NO_PROXY"], env["no_proxy"], env["ftp_proxy"]) == ("", "", "http://x:3")


@pytest.mark.parametrize(("excepted", "is_proxied"), [("", True), (".example", False)])
def test_an_agent_elsewhere_is_asked_through_the_users_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, excepted: str, is_proxied: bool
) -> None:
    with server(lambda seen: (200, "text/plain", b"through the proxy")) as (users_proxy, passed):
        monkeypatch.setenv("HTTP_PROXY", users_proxy)
        monkeypatch.setenv("NO_PROXY", excepted)
        run = ask(AgentSpec(type="http", endpoint="http://agent.example/ask", timeout_ms=60_000), tmp_path)
        here = ask(AgentSpec(type="http", endpoint="http://127.0.0.1:9/ask", timeout_ms=60_000), tmp_path)
    assert run.answer == ("through the proxy" if is_proxied else None)
    assert len(passed) == is_proxied and here.failure is not None and here.failure.kind == "down"


def test_a_model_that_the_proxy_cannot_reach_is_never_the_agents_fault(tmp_path: Path) -> None:
    agent = spec(AGENT.format(default="-"), env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    plan = contract(invariant("answers", Completes()), agent=agent)
    report = run_on_agent(plan, open_agent(agent, tmp_path))
    (cell,) = report.cells
    assert report.exit_code == 4 and "the model at `http://127.0.0.1:9/v1/chat/completions`" in cell.reason
    assert cell.evidence[0].answer is None


def test_a_base_url_that_is_no_address_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "nowhere")
    report = run_on_agent(contract(agent=spec()), open_agent(spec(), tmp_path))
    assert report.exit_code == 4 and "OPENAI_BASE_URL is `nowhere`" in (report.stopped or "")
