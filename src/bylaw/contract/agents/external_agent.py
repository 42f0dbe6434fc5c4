"""What agents with a URL or a command have in common: the proxy around them and the environment that leads to it.

The chaos proxy is between such an agent and everything it talks to. A request belongs to the run whose token it
carries, or to the only run in progress. Besides what every proxy serves, this one serves MCP servers at `/mcp/NAME`
(HTTP) and `/mcp-stdio/NAME` (through the bridge), and models from scripts.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import secrets
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from bylaw.contract.agents import mcp_bridge
from bylaw.contract.agents.answers import agent_run
from bylaw.contract.agents.mcp_calls import McpRun
from bylaw.contract.agents.mcp_servers import carry_mcp, list_tools, serve_bridge
from bylaw.contract.agents.processes import Leftovers
from bylaw.contract.agents.prompts import Dialogue, why_no_conversation
from bylaw.contract.agents.python_workers import has_reset, reset_agent
from bylaw.contract.agents.scripted_model import ScriptedModel
from bylaw.contract.faults.exchanges import Interceptor, ModelExchange
from bylaw.contract.faults.model import AnyFault, Injection, ToolFault
from bylaw.contract.faults.plan import Plan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure, is_proxied, why_out_of_reach
from bylaw.contract.model import AgentSpec, McpServer, messages_of, shown_url
from bylaw.errors import BylawError
from bylaw.rules.messages import near
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.proxy.child_environment import (
    MODEL_HOSTS,
    Address,
    Authority,
    base_url_variables,
    named_addresses,
    proxy_variables,
    trust_variables,
)
from bylaw.wire.proxy.http1 import Connection, Request, Route, proxy_error
from bylaw.wire.proxy.server import PROVIDERS, Fetch, Proxy, carry_exchange, outgoing
from bylaw.wire.proxy.upstream import Reply, UpstreamFailure


class ProxiedRun:
    """One run of the agent as the proxy sees it."""

    def __init__(self, injection: Injection, prompt: str) -> None:
        self.token = secrets.token_hex(8)
        self.plan = Plan(injection)
        self.recorder = Recorder(injection.run, prompt)
        self.interceptor = Interceptor(self.plan, self.recorder)
        self.mcp = McpRun(self.plan, self.recorder)
        self.unreached: dict[str, str] = {}
        """the models that the proxy failed to ask, and why; one that answered later is not among them"""
        self.tasks: set[asyncio.Task[bool]] = set()
        """requests being served for it, which end with it"""


class Runs:
    """The runs in progress."""

    def __init__(self) -> None:
        self._open: dict[str, ProxiedRun] = {}

    def open(self, run: ProxiedRun) -> None:
        self._open[run.token] = run

    async def close(self, run: ProxiedRun) -> None:
        """Cancel the requests that are still being served."""
        self._open.pop(run.token, None)
        tasks = list(run.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def find(self, token: str | None) -> ProxiedRun | None:
        """The run of a token; without a token, the only run in progress. Raises KeyError if the token's run is over."""
        if token is not None:
            return self._open[token]
        return next(iter(self._open.values())) if len(self._open) == 1 else None


class ChaosProxy(Proxy):
    """The proxy of one agent."""

    def __init__(
        self,
        *,
        upstreams: Mapping[str, str] | None = None,
        mcp: tuple[McpServer, ...] = (),
        base: Path = Path(),
        port: int | None = None,
        authority: Authority | None = None,
        decrypts_all: bool = True,
    ) -> None:
        """`upstreams`: for each model provider a URL, or a script (YAML or JSON) relative to `base`.

        `decrypts_all`: whether all tunnels are decrypted, and not only those to hosts that serve models.
        """
        self._scripts = {name: path for name, path in (upstreams or {}).items() if is_script(path)}
        servers = {name: url for name, url in (upstreams or {}).items() if name not in self._scripts}
        super().__init__(upstreams={**PROVIDERS, **servers}, port=port, authority=authority)
        self.runs = Runs()
        self._mcp = {server.name: server for server in mcp}
        self._base = base
        self._models: dict[str, ScriptedModel] = {}
        self._decrypts_all = decrypts_all
        self.refused: set[str] = set()
        """hosts for which the agent does not trust our certificate; it gets through to them unread from then on"""

    async def start(self) -> None:
        """Raises AgentUnreachable."""
        self._models = {name: ScriptedModel.load(self._base / path) for name, path in self._scripts.items()}
        try:
            await super().start()
        except OSError as error:
            raise AgentUnreachable(f"the proxy cannot listen on port {self.port}: {error.strerror or error}") from None

    def decrypts(self, host: str) -> bool:
        is_model = any(fnmatchcase(host.lower(), known) for known in MODEL_HOSTS)
        return (self._decrypts_all or is_model) and host not in self.refused

    def on_tls_refused(self, host: str, token: str | None) -> None:
        self.refused.add(host)
        run = self._run_of(token)
        if run is not None:
            run.recorder.note("tls_refused", {"host": host})

    async def serve(self, connection: Connection, request: Request, route: Route) -> bool:
        """Serve a request as a task of its run, so that it ends with the run. MCP connections outlast runs."""
        try:
            run = self.runs.find(route.token)
        except KeyError:
            await connection.reply(proxy_error(410, "this run is over"))
            return False
        outlasts_run = route.kind == "path" and (request.method != "POST" or route.rest.startswith("/mcp-stdio/"))
        if run is None or outlasts_run:
            return await self._serve(connection, request, route, None)
        task = asyncio.create_task(self._serve(connection, request, route, run))
        run.tasks.add(task)
        task.add_done_callback(run.tasks.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():  # the run is over; the reply may have been finished before
            return connection.is_between_requests
        return task.result()

    async def _serve(self, connection: Connection, request: Request, route: Route, run: ProxiedRun | None) -> bool:
        if route.kind == "path":
            return await self._serve_mcp(connection, request, route, run)
        model = self._models.get(route.name)
        message = outgoing(request, self.upstream_url(route) or "")
        script = self._scripts.get(route.name)
        exchange = Exchange(message) if run is None else run.interceptor.begin(message, model=script)
        fetch = self.fetch if model is None else model.fetch
        if run is not None and isinstance(exchange, ModelExchange):
            fetch = functools.partial(_fetch_for, run, fetch)
        return await carry_exchange(exchange, connection, fetch)

    async def _serve_mcp(self, connection: Connection, request: Request, route: Route, run: ProxiedRun | None) -> bool:
        path, mark, query = route.rest.partition("?")
        kind, _, name = path.removeprefix("/").partition("/")
        name, slash, more = name.partition("/")
        server = self._mcp.get(name)
        if server is not None and kind == "mcp" and server.url is not None:
            url = server.url + (slash + more if more else "") + mark + query
            return await carry_mcp(connection, outgoing(request, url), run.mcp if run else None)
        if server is not None and kind == "mcp-stdio" and server.command:
            await connection.switch(101)
            await serve_bridge(connection, server.command, self._base, lambda: self._mcp_run(route.token))
            return False
        await connection.reply(proxy_error(404, f"nothing is served at `{route.rest}`"))
        return True

    def _mcp_run(self, token: str | None) -> McpRun | None:
        """The run that a message belongs to on a connection that outlasts runs."""
        run = self._run_of(token)
        return None if run is None else run.mcp

    def _run_of(self, token: str | None) -> ProxiedRun | None:
        try:
            return self.runs.find(token)
        except KeyError:
            return None


@asynccontextmanager
async def _fetch_for(run: ProxiedRun, fetch: Fetch, request: Outgoing) -> AsyncIterator[Reply]:
    """Remember in the run that its model cannot be asked."""
    where = shown_url(request.url)
    try:
        async with fetch(request) as reply:
            run.unreached.pop(where, None)
            yield reply
    except UpstreamFailure as failure:
        run.unreached[where] = str(failure)
        raise


def is_script(upstream: str) -> bool:
    """Whether an upstream is a file with a scripted model instead of a URL."""
    return upstream.endswith((".yaml", ".yml", ".json"))


# The agent

Outcome: TypeAlias = tuple[str | Failure, float]
"""the answer or the failure, and the latency in milliseconds"""
_VERSIONS = {"openai": "/v1", "anthropic": ""}
"""the path of a base URL, as the clients of each provider expect it"""


class ExternalAgent:
    """An agent that runs in another process, with the proxy around it. Subclasses ask it."""

    def __init__(self, spec: AgentSpec, *, base: Path | None = None, ends_children: bool = False) -> None:
        """`ends_children`: whether processes that it leaves behind are ended even if they have lost its environment."""
        self._spec = spec
        self._base = base or Path()
        self._certificate_folder: tempfile.TemporaryDirectory[str] | None = None
        self._tools: frozenset[str] | None = frozenset()
        """the tools of its MCP servers; None: unknown"""
        self.proxy: ChaosProxy | None = None
        self.leftovers = Leftovers(ends_marked=True, ends_unmarked=ends_children)
        self._trust: dict[str, str] = {}
        """the variables that make a command trust the proxy; their file is written once"""

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
        return self.leftovers.warnings

    @property
    def knows_tools(self) -> bool:
        """What passes the proxy decides whether its calls are seen."""
        return False

    def load(self) -> None:
        asyncio.run(self._find_tools())

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
        assert self.proxy is not None
        runs = self.proxy.runs
        messages = messages_of(prompt)
        run = ProxiedRun(injection, messages[0])
        runs.open(run)
        try:
            outcome, latency, earlier = await self._converse(
                messages, run.recorder, lambda message, dialogue: ask(message, dialogue, run)
            )
        finally:
            await runs.close(run)
            self.leftovers.reap()
        if run.unreached:
            # Whatever the agent made of it: this is our side of the proxy, and says nothing about the agent.
            where, why = next(iter(run.unreached.items()))
            outcome = Failure("upstream", f"the model at `{where}` cannot be asked: {why}")
        return agent_run(outcome, latency, run.plan, run.recorder, self.notes, earlier)

    # Its environment: the proxy, if there is one, and the variables that point the agent to it

    @property
    def folder(self) -> Path:
        """The working directory of the command."""
        return self._base / (self._spec.cwd or "")

    async def start(self) -> None:
        """Raises AgentUnreachable."""
        if not is_proxied(self._spec):
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
        await self._find_tools()

    async def _find_tools(self) -> None:
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
