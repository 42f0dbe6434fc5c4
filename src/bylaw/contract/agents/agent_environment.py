"""What agents with a URL or a command have in common: the proxy around them and the environment that leads to it."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from bylaw.contract.agents import mcp_bridge
from bylaw.contract.agents.answers import agent_run
from bylaw.contract.agents.mcp_servers import list_tools
from bylaw.contract.agents.proxy import ChaosProxy, ProxiedRun, is_script
from bylaw.contract.agents.reset import has_reset, reset_agent
from bylaw.contract.faults.model import AnyFault, Injection, ToolFault
from bylaw.contract.live_agent import AgentRun, Failure
from bylaw.contract.model import AgentSpec
from bylaw.contract.reach import is_proxied, why_out_of_reach
from bylaw.rules.messages import near
from bylaw.wire.proxy.authority import Authority

MOST_ANSWER = 10 * 1024 * 1024
TOO_LARGE = Failure("bad_answer", f"the answer is larger than {MOST_ANSWER // 1024**2} MB")
Outcome: TypeAlias = tuple[str | Failure, float]
"""the answer or the failure, and the latency in milliseconds"""
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]", "*")


class ExternalAgent:
    """An agent that runs in another process. Subclasses ask it."""

    def __init__(self, spec: AgentSpec, *, base: Path | None = None) -> None:
        self._spec = spec
        self._base = base or Path()
        self._environment = AgentEnvironment(spec, self._base)

    @property
    def has_reset(self) -> bool:
        return has_reset(self._spec)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the trace of each run."""
        return ()

    def refusal(self, fault: AnyFault) -> str | None:
        return self._environment.refusal(fault)

    async def start(self) -> None:
        await self._environment.start()

    async def stop(self) -> None:
        await self._environment.stop()

    async def reset(self) -> None:
        await reset_agent(self._spec, self._base)

    async def _run_proxied(
        self, prompt: str, injection: Injection, ask: Callable[[ProxiedRun], Awaitable[Outcome]]
    ) -> AgentRun:
        assert self._environment.proxy is not None
        runs = self._environment.proxy.runs
        run = ProxiedRun(injection, prompt)
        runs.open(run)
        try:
            outcome, latency = await ask(run)
        finally:
            await runs.close(run)
        return agent_run(outcome, latency, run.plan, run.recorder, self.notes)


class AgentEnvironment:
    """The proxy of one agent, if there is one, and the environment variables that point the agent to it."""

    def __init__(self, spec: AgentSpec, base: Path) -> None:
        self._spec = spec
        self._base = base
        self._certificate_folder: tempfile.TemporaryDirectory[str] | None = None
        self._tools: frozenset[str] | None = frozenset()
        """the tools of its MCP servers; None: unknown"""
        self.proxy: ChaosProxy | None = None

    @property
    def is_proxied(self) -> bool:
        return is_proxied(self._spec)

    @property
    def folder(self) -> Path:
        """The working directory of the command."""
        return self._base / (self._spec.cwd or "")

    async def start(self) -> None:
        """Raises AgentUnreachable."""
        if not self.is_proxied:
            return
        spec = self._spec
        self.proxy = ChaosProxy(
            upstreams=spec.upstreams,
            mcp=spec.mcp,
            base=self._base,
            port=spec.proxy_port,
            authority=self._authority() if spec.trusts_ca else None,
        )
        await self.proxy.start()
        self._tools = await list_tools(spec.mcp, self._base)

    async def stop(self) -> None:
        if self.proxy is not None:
            await self.proxy.stop()
            self.proxy = None
        if self._certificate_folder is not None:
            self._certificate_folder.cleanup()

    def _authority(self) -> Authority:
        if not self._spec.command:  # its owner starts the agent, which must trust the authority before we run
            return Authority.persistent(self._base / ".bylaw")
        self._certificate_folder = tempfile.TemporaryDirectory(prefix="bylaw-")
        return Authority.temporary(Path(self._certificate_folder.name))

    def variables(self, run: ProxiedRun | None = None) -> dict[str, str]:
        """The environment of a command; with a run, every request carries the run's token."""
        assert self.proxy is not None
        token = None if run is None else run.token
        url = self.proxy.url(token)
        forward = url if token is None else f"http://run:{token}@{urlsplit(url).netloc}"
        env = {**os.environ, "BYLAW_PROXY": url}
        env |= {"OPENAI_BASE_URL": f"{url}/openai/v1", "OPENAI_API_BASE": f"{url}/openai/v1"}
        env["ANTHROPIC_BASE_URL"] = f"{url}/anthropic"
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            env |= {name: forward, name.lower(): forward}
        no_proxy = _without_loopback(env.get("NO_PROXY") or env.get("no_proxy") or "")
        env |= {"NO_PROXY": no_proxy, "no_proxy": no_proxy}
        if self.proxy.authority is not None:
            env |= self.proxy.authority.environment()
        for provider in ("openai", "anthropic"):
            if is_script(self._spec.upstreams.get(provider, "")):
                env.setdefault(f"{provider.upper()}_API_KEY", "scripted")
        for server in self._spec.mcp:
            name = "BYLAW_MCP_" + re.sub(r"\W", "_", server.name).upper()
            if server.url is not None:
                env[f"{name}_URL"] = f"{url}/mcp/{server.name}"
            else:
                env[f"{name}_COMMAND"] = shlex.join((sys.executable, str(mcp_bridge.__file__), server.name))
        return {**env, **self._spec.env}

    def refusal(self, fault: AnyFault) -> str | None:
        """Why a fault can never hit this agent; None if it can.

        A tool that no MCP server has may still be one that runs inside the agent: its results are hit on their way to
        the model. Only a name that is misspelt is refused.
        """
        why = why_out_of_reach(self._spec, fault)
        if why is not None or not isinstance(fault, ToolFault) or fault.match_url is not None:
            return why
        name, tools = fault.tool or "*", self._tools or frozenset()
        if any(fnmatchcase(tool, name) for tool in tools) or (match := near(name, tools)) is None:
            return None
        return f"no tool `{name}` is visible to the proxy; did you mean `{match}`, which an MCP server has?"


def _without_loopback(no_proxy: str) -> str:
    """Requests to tools on this machine must pass the proxy too."""
    return ",".join(name for part in no_proxy.split(",") if (name := part.strip()) and name not in _LOOPBACK)
