"""What agents with a URL or a command have in common: the proxy around them and the environment that leads to it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from bylaw.contract.agents import mcp_bridge
from bylaw.contract.agents.answers import agent_run
from bylaw.contract.agents.dialogue import Dialogue, why_no_conversation
from bylaw.contract.agents.leftovers import Leftovers
from bylaw.contract.agents.mcp_servers import list_tools
from bylaw.contract.agents.proxy import ChaosProxy, ProxiedRun, is_script
from bylaw.contract.agents.reset import has_reset, reset_agent
from bylaw.contract.faults.model import AnyFault, Injection, ToolFault
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure
from bylaw.contract.model import AgentSpec, messages_of
from bylaw.contract.reach import is_proxied, why_out_of_reach
from bylaw.errors import BylawError
from bylaw.rules.messages import near
from bylaw.wire.proxy.authority import Authority
from bylaw.wire.proxy.child_environment import (
    Address,
    base_url_variables,
    named_addresses,
    proxy_variables,
    trust_variables,
)

Outcome: TypeAlias = tuple[str | Failure, float]
"""the answer or the failure, and the latency in milliseconds"""
_VERSIONS = {"openai": "/v1", "anthropic": ""}
"""the path of a base URL, as the clients of each provider expect it"""


class ExternalAgent:
    """An agent that runs in another process. Subclasses ask it."""

    def __init__(self, spec: AgentSpec, *, base: Path | None = None, ends_children: bool = False) -> None:
        """`ends_children`: whether processes that it leaves behind are ended even if they have lost its environment."""
        self._spec = spec
        self._base = base or Path()
        self._environment = AgentEnvironment(spec, self._base, ends_children=ends_children)

    @property
    def has_reset(self) -> bool:
        return has_reset(self._spec)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the trace of each run."""
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What reports say about the agent; complete once it has stopped."""
        return self._environment.leftovers.warnings

    @property
    def knows_tools(self) -> bool:
        """What passes the proxy decides whether its calls are seen."""
        return False

    def refusal(self, fault: AnyFault) -> str | None:
        return self._environment.refusal(fault)

    def load(self) -> None:
        asyncio.run(self._environment.find_tools())

    async def start(self) -> None:
        await self._environment.start()

    async def stop(self) -> None:
        await self._environment.stop()

    async def reset(self) -> None:
        await reset_agent(self._spec, self._base)

    def why_no_conversation(self) -> str | None:
        return why_no_conversation(self._spec)

    async def _converse(
        self, messages: Sequence[str], recorder: Recorder, ask: Callable[[str, Dialogue], Awaitable[Outcome]]
    ) -> tuple[str | Failure, float, list[str]]:
        """Ask one message after the other: the last answer or the failure, the longest latency, earlier answers."""
        dialogue, answers, longest = Dialogue(), list[str](), 0.0
        for message in messages:
            if answers:
                recorder.said("assistant", answers[-1])
                recorder.said("user", message)
            outcome, latency = await ask(message, dialogue)
            longest = max(longest, latency)
            if isinstance(outcome, Failure):
                return outcome, longest, answers
            dialogue.add(message, outcome)
            answers.append(outcome)
        return answers[-1], longest, answers[:-1]

    async def _run_proxied(
        self, prompt: str, injection: Injection, ask: Callable[[str, Dialogue, ProxiedRun], Awaitable[Outcome]]
    ) -> AgentRun:
        assert self._environment.proxy is not None
        runs = self._environment.proxy.runs
        messages = messages_of(prompt)
        run = ProxiedRun(injection, messages[0])
        runs.open(run)
        try:
            outcome, latency, earlier = await self._converse(
                messages, run.recorder, lambda message, dialogue: ask(message, dialogue, run)
            )
        finally:
            await runs.close(run)
            self._environment.leftovers.reap()
        if run.unreached:
            # Whatever the agent made of it: this is our side of the proxy, and says nothing about the agent.
            where, why = next(iter(run.unreached.items()))
            outcome = Failure("upstream", f"the model at `{where}` cannot be asked: {why}")
        return agent_run(outcome, latency, run.plan, run.recorder, self.notes, earlier)


class AgentEnvironment:
    """The proxy of one agent, if there is one, and the environment variables that point the agent to it."""

    def __init__(self, spec: AgentSpec, base: Path, *, ends_children: bool = False) -> None:
        self._spec = spec
        self._base = base
        self._certificate_folder: tempfile.TemporaryDirectory[str] | None = None
        self._tools: frozenset[str] | None = frozenset()
        """the tools of its MCP servers; None: unknown"""
        self.proxy: ChaosProxy | None = None
        self.leftovers = Leftovers(ends_marked=True, ends_unmarked=ends_children)
        self._trust: dict[str, str] = {}
        """the variables that make a command trust the proxy; their file is written once"""

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
        self.leftovers.start()
        self.proxy = ChaosProxy(
            upstreams={**{name: one.origin for name, one in self._named.items()}, **spec.upstreams},
            mcp=spec.mcp,
            base=self._base,
            port=spec.proxy_port,
            authority=self._authority(),
            decrypts_all=spec.trusts_ca,
        )
        await self.proxy.start()
        await self.find_tools()

    async def find_tools(self) -> None:
        self._tools = await list_tools(self._spec.mcp, self._base)

    async def stop(self) -> None:
        if self.proxy is not None:
            await self.proxy.stop()
            self.proxy = None
        if self._certificate_folder is not None:
            self._certificate_folder.cleanup()
        await self.leftovers.stop()

    @property
    def _named(self) -> dict[str, Address]:
        """The base URLs that the environment of the agent names. An agent that its owner starts has one of its own."""
        try:
            named = named_addresses({**os.environ, **self._spec.env})
        except BylawError as problem:
            raise AgentUnreachable(str(problem)) from None
        own = f":{self._spec.proxy_port}"
        return {name: one for name, one in named.items() if not one.origin.endswith(own)}

    def _authority(self) -> Authority | None:
        """Without one, HTTPS passes unread. A command gets to trust it, so that models that nobody names are seen."""
        if not self._spec.trusts_ca and (not self._spec.command or self._named or self._spec.upstreams):
            return None
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
        env = {**os.environ, **self._spec.env}
        env |= {"BYLAW_PROXY": url, **self.leftovers.variables, **proxy_variables(env, forward)}
        for provider, address in self._named.items():
            env |= base_url_variables(provider, f"{url}/{provider}{address.path}")
        for provider in self._spec.upstreams:
            env |= base_url_variables(provider, f"{url}/{provider}{_VERSIONS[provider]}")
        if self.proxy.authority is not None and self._certificate_folder is not None:
            if not self._trust:
                self._trust = trust_variables(env, self.proxy.authority, Path(self._certificate_folder.name))
            env |= self._trust
        for provider in ("openai", "anthropic"):
            if is_script(self._spec.upstreams.get(provider, "")):
                env.setdefault(f"{provider.upper()}_API_KEY", "scripted")
        for server in self._spec.mcp:
            name = "BYLAW_MCP_" + re.sub(r"\W", "_", server.name).upper()
            if server.url is not None:
                env[f"{name}_URL"] = f"{url}/mcp/{server.name}"
            else:
                env[f"{name}_COMMAND"] = shlex.join((sys.executable, str(mcp_bridge.__file__), server.name))
        return env

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
