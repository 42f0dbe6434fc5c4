"""A client's connection: the proxy, the server behind it, and the session that its calls belong to."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from bylaw.guard.guard import Guard
from bylaw.guard.integrations.calls import Calls
from bylaw.guard.integrations.mcp.messages import Message, Send
from bylaw.guard.integrations.mcp.pins import ToolCheck
from bylaw.guard.integrations.mcp.proxy import McpProxy

_log = logging.getLogger("bylaw")


class Server(Protocol):
    """A server, wherever it runs."""

    def start(self, receive: Send, ended: Callable[[], object]) -> None:
        """Begin. `receive` gets each of its messages, `ended` is called when there will be no more. Raises OSError."""
        ...

    def send(self, message: Message) -> None: ...

    def close(self) -> int:
        """End it. The exit code."""
        ...


class Settings(Struct, frozen=True, kw_only=True):
    """What all connections of one command share."""

    guard: Guard
    make_server: Callable[[], Server]
    """a server for one connection"""
    agent: str | None = None
    session: str | None = None
    """None: each connection is a session of its own"""
    wait: float = 0.0
    check: ToolCheck | None = None


class Connection:
    def __init__(self, settings: Settings, to_client: Send, *, session: str | None = None) -> None:
        """`session`: if the settings name none."""
        self._settings, self._server = settings, settings.make_server()
        named = settings.session or session
        self._ends = None if named else f"mcp-{uuid.uuid4().hex[:12]}"
        """the session that ends with the connection"""
        calls = Calls(settings.guard, agent=settings.agent, session=named or self._ends)
        self._proxy = McpProxy(
            calls, to_server=self._server.send, to_client=to_client, wait=settings.wait, check=settings.check
        )
        self.from_client = self._proxy.from_client

    def start(self, ended: Callable[[], object]) -> None:
        """Raises OSError if the server cannot be started."""
        self._server.start(self._proxy.from_server, ended)

    def close(self) -> int:
        """The exit code of the server."""
        code = self._server.close()
        self._proxy.close()
        if self._ends is not None:
            broken = self._settings.guard.end_session(self._ends)
            if broken:
                _log.warning("broken: %s", "; ".join(f"{one.rule.id}: {one.message}" for one in broken))
            self._ends = None
        return code
