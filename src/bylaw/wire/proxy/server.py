"""The proxy itself: takes connections on loopback and hands each request to what it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

from bylaw.contract.live.mcp.calls import McpRun
from bylaw.contract.live.mcp.http import carry_mcp
from bylaw.contract.live.mcp.stdio import serve_bridge
from bylaw.contract.live.scripted.upstream import ScriptedUpstream
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import McpServer
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.formats.base import json_reply
from bylaw.wire.proxy.authority import Authority
from bylaw.wire.proxy.carry import Fetch, carry
from bylaw.wire.proxy.http1 import HOP_BY_HOP, BadRequest, Connection, Request
from bylaw.wire.proxy.routes import Route, route_of, token_of
from bylaw.wire.proxy.runs import ProxiedRun, Runs
from bylaw.wire.proxy.tunnel import relay
from bylaw.wire.proxy.upstream import Reply, UpstreamFailure, connect, fetch

UPSTREAMS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
MOST_CONNECTIONS = 256


class ChaosProxy:
    """One per agent."""

    def __init__(
        self,
        *,
        upstreams: Mapping[str, str] | None = None,
        mcp: tuple[McpServer, ...] = (),
        base: Path = Path(),
        port: int | None = None,
        authority: Authority | None = None,
    ) -> None:
        self.runs = Runs()
        self.port = port or 0
        self.authority = authority
        self._mcp = {server.name: server for server in mcp}
        self._base = base
        self._upstreams = {**UPSTREAMS, **(upstreams or {})}
        self._scripts: dict[str, ScriptedUpstream] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._own: frozenset[str] = frozenset()

    async def start(self) -> None:
        for name, target in self._upstreams.items():
            if target.endswith((".yaml", ".yml", ".json")):
                self._scripts[name] = ScriptedUpstream.load(self._base / target)
        try:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=256 * 1024)
        except OSError as error:
            raise AgentUnreachable(f"the proxy cannot listen on port {self.port}: {error.strerror or error}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        self._own = frozenset(f"{host}:{self.port}" for host in ("127.0.0.1", "localhost", "[::1]"))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def url(self, run: ProxiedRun | None = None) -> str:
        return f"http://127.0.0.1:{self.port}" + (f"/run/{run.token}" if run else "")

    # Connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        connection = Connection(reader, writer)
        try:
            await self._serve(connection)
            await connection.close()
        except (OSError, TimeoutError):
            writer.transport.abort()  # the agent has gone, which is its own affair
        except asyncio.CancelledError:
            writer.transport.abort()  # and no more: a connection's task that ends cancelled is logged as an error
        finally:
            self._connections.discard(task)

    async def _serve(self, connection: Connection, *, inside: tuple[str, str | None] | None = None) -> None:
        """Requests until the connection ends; `inside` a tunnel: the address it leads to, and its token."""
        goes_on = True
        while goes_on:
            try:
                request = await connection.next_request()
            except BadRequest as error:
                if not connection.has_begun:
                    await connection.reply(json_reply(error.status, {"error": f"bylaw proxy: {error}"}))
                return
            if request is None:
                return
            if inside is not None:
                goes_on = await self._request(
                    connection, request, Route("forward", "", inside[0] + request.target, inside[1])
                )
            elif request.method == "CONNECT":
                await self._tunnel(connection, request)
                return
            else:
                goes_on = await self._request(connection, request, route_of(request, own=self._own))

    async def _request(self, connection: Connection, request: Request, route: Route) -> bool:
        """One request, as a task of its run, so that it ends with it; what outlasts a run belongs to none."""
        try:
            run = self.runs.find(route.token)
        except KeyError:
            await connection.reply(json_reply(410, {"error": "bylaw proxy: this run is over"}))
            return False
        if run is None or route.kind == "mcp-stdio" or (route.kind == "mcp" and request.method != "POST"):
            return await self._carried(connection, request, route, None)
        return await self._in_run(connection, request, route, run)

    async def _in_run(self, connection: Connection, request: Request, route: Route, run: ProxiedRun) -> bool:
        outcome: list[bool] = []

        async def work() -> None:
            outcome.append(await self._carried(connection, request, route, run))

        task = asyncio.create_task(work())
        run.tasks.add(task)
        task.add_done_callback(run.tasks.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():  # the run is over, perhaps while the last of a finished reply was being tidied up
            return connection.is_between_requests
        if (error := task.exception()) is not None:
            raise error
        return outcome[0]

    async def _carried(self, connection: Connection, request: Request, route: Route, run: ProxiedRun | None) -> bool:
        if route.kind == "mcp" and route.name in self._mcp and self._mcp[route.name].url is not None:
            target = (self._mcp[route.name].url or "") + route.rest
            return await carry_mcp(connection, _outgoing(request, target), run.mcp if run else None)
        if route.kind == "mcp-stdio" and route.name in self._mcp and self._mcp[route.name].command:
            await connection.switch(101)
            await serve_bridge(
                connection, self._mcp[route.name].command, self._base, lambda: self._mcp_run(route.token)
            )
            return False
        if route.kind == "model":
            return await self._model(connection, request, route, run)
        if route.kind == "forward":
            outgoing = _outgoing(request, route.rest)
            return await carry(self._begin(run, outgoing), connection, self._fetch)
        await connection.reply(json_reply(404, {"error": f"bylaw proxy: nothing is served at `{route.rest}`"}))
        return True

    def _mcp_run(self, token: str | None) -> McpRun | None:
        """The run that a message belongs to on a connection that outlasts runs."""
        try:
            run = self.runs.find(token)
        except KeyError:
            return None
        return run.mcp if run is not None else None

    async def _model(self, connection: Connection, request: Request, route: Route, run: ProxiedRun | None) -> bool:
        script = self._scripts.get(route.name)
        base = UPSTREAMS[route.name] if script is not None else self._upstreams[route.name].rstrip("/")
        path = route.rest
        if urlsplit(base).path.endswith("/v1"):
            path = path.removeprefix("/v1")  # an upstream may be given with its version, as SDKs do
        across: Fetch = self._fetch if script is None else script.fetch
        return await carry(self._begin(run, _outgoing(request, base + path)), connection, across)

    def _begin(self, run: ProxiedRun | None, request: Outgoing) -> Exchange:
        """Outside of any run nothing is done to a request."""
        return Exchange(request) if run is None else run.interceptor.begin(request)

    def _fetch(self, request: Outgoing) -> AbstractAsyncContextManager[Reply]:
        return fetch(request)

    # Tunnels

    async def _tunnel(self, connection: Connection, request: Request) -> None:
        host, _, port = request.target.rpartition(":")
        host = host.strip("[]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            await connection.reply(json_reply(400, {"error": f"bylaw proxy: `{request.target}` is no address"}))
            return
        if self.authority is not None and self._opens(host):
            await self._inside_tls(connection, host, int(port), token_of(request), self.authority)
            return
        try:
            reader, writer = await self._connect(host, int(port))
        except UpstreamFailure as error:
            await connection.reply(json_reply(502, {"error": f"bylaw proxy: {error}"}))
            return
        await connection.switch(200)
        await relay(connection, reader, writer)

    async def _inside_tls(
        self, connection: Connection, host: str, port: int, token: str | None, authority: Authority
    ) -> None:
        """Answer as the host, with a certificate of our own, and serve what comes as requests to it."""
        try:
            context = authority.context(host)
        except ValueError as error:
            await connection.reply(json_reply(400, {"error": f"bylaw proxy: {error}"}))
            return
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]  # no byte of TLS may be read as text
        await connection.switch(200)
        try:
            await connection.writer.start_tls(context)
        except (OSError, TimeoutError):  # the agent does not trust the authority after all
            self._refused(host, token)
            return
        address = f"https://{host}" if port == 443 else f"https://{host}:{port}"
        await self._serve(Connection(connection.reader, connection.writer), inside=(address, token))

    def _opens(self, host: str) -> bool:
        """Whether to look into the tunnels to a host."""
        return True

    def _refused(self, host: str, token: str | None) -> None:
        if (run := self.runs.find(token)) is not None:
            run.recorder.note("tls_refused", {"host": host})

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await connect(host, port, secure=False)


def _outgoing(request: Request, url: str) -> Outgoing:
    headers: dict[str, str] = {}
    for name, value in request.headers:
        if name not in HOP_BY_HOP and name != "host":
            separator = "; " if name == "cookie" else ", "
            headers[name] = headers[name] + separator + value if name in headers else value
    return Outgoing(request.method, url, headers, request.body)
