"""A server on loopback that is not a model: it echoes, redirects, compresses, streams and serves a websocket."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

PIECE = b"x" * 100_000
PIECES = 600


class OtherServer:
    def __init__(self) -> None:
        self.url = ""
        self.goes_on = asyncio.Event()
        self.sent = 0
        """pieces of `/flood/messages`"""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/socket", self._socket)
        app.router.add_get("/moved", self._moved)
        app.router.add_post("/moved/messages", self._moved)
        app.router.add_get("/packed", self._packed)
        app.router.add_get("/begun", self._begun)
        app.router.add_get("/go", self._go)
        app.router.add_post("/flood/messages", self._flood)
        app.router.add_route("*", "/{echo:.*}", self._echo)
        return app

    async def _echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        asked = {name: request.headers.get(name) for name in ("content-length", "transfer-encoding", "content-type")}
        return web.json_response({"body": body.hex(), **asked})

    async def _moved(self, _request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/echo")

    async def _packed(self, _request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"{}", mtime=0), headers={"content-encoding": "gzip"})

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"heard {message.data}")
        return socket

    async def _begun(self, request: web.Request) -> web.StreamResponse:
        """The head comes at once, the body after a request of `/go`."""
        reply = web.StreamResponse(headers={"content-length": "4"})
        await reply.prepare(request)
        await self.goes_on.wait()
        await reply.write(b"done")
        return reply

    async def _go(self, _request: web.Request) -> web.Response:
        self.goes_on.set()
        return web.Response()

    async def _flood(self, request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        for self.sent in range(1, PIECES + 1):
            await reply.write(PIECE)
        return reply


@contextmanager
def serving_others() -> Iterator[OtherServer]:
    loop, is_up = asyncio.new_event_loop(), threading.Event()
    server = OtherServer()
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        is_up.set()

    def serve() -> None:
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert is_up.wait(300)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(300)
