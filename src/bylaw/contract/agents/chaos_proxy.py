"""The chaos proxy: between an agent in another process and everything it talks to.

A request belongs to the run whose token it carries, or to the only run in progress. Besides what every proxy serves,
this one serves MCP servers at `/mcp/NAME` (HTTP) and `/mcp-stdio/NAME` (through the bridge), and models from scripts.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from bylaw.contract.agents.mcp_calls import McpRun
from bylaw.contract.agents.mcp_servers import carry_mcp, serve_bridge
from bylaw.contract.agents.scripted_model import ScriptedModel
from bylaw.contract.faults import Injection
from bylaw.contract.faults.exchanges import Interceptor, ModelExchange
from bylaw.contract.faults.plan import Plan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import McpServer, shown_url
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.proxy.child_environment import (
    MODEL_HOSTS,
    Authority,
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
        """The run of a token, unless it is over; without a token, the only run in progress."""
        if token is not None:
            return self._open.get(token)
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
        run = self.runs.find(token)
        if run is not None:
            run.recorder.note("tls_refused", {"host": host})

    async def serve(self, connection: Connection, request: Request, route: Route) -> bool:
        """Serve a request as a task of its run, so that it ends with the run. MCP connections outlast runs."""
        run = self.runs.find(route.token)
        if run is None and route.token is not None:
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
            # the run that a message belongs to is looked up for each: the connection outlasts runs
            await serve_bridge(
                connection, server.command, self._base, lambda: getattr(self.runs.find(route.token), "mcp", None)
            )
            return False
        await connection.reply(proxy_error(404, f"nothing is served at `{route.rest}`"))
        return True


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
