"""The sessions of clients that come by HTTP, and which of their open requests a message of the server belongs to."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from bylaw.guard.integrations.mcp.messages import (
    METHOD_NOT_FOUND,
    Message,
    encode,
    is_answer,
    is_request,
    key_of,
    meta_of,
    params_of,
    replace_id,
)
from bylaw.guard.integrations.mcp.proxy import Connection, Settings

MOST_SESSIONS = 128
"""with `initialize`; each has its own connection to the server. The one that was idle longest is ended"""
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
"""in the `_meta` of what belongs to a `subscriptions/listen`: the id of that request"""
MOST_QUEUED = 10_000
"""messages that wait for a client to read them"""
MOST_SHARED = 1024
"""sessions that a header names"""

_log = logging.getLogger("bylaw")


class Exchange:
    """A request of a client, or its stream, and the messages that go there."""

    def __init__(self, session: HttpSession, message: Message | None) -> None:
        self._session, self._message = session, message
        self.messages: SimpleQueue[Message | None] = SimpleQueue()
        self.id = None if message is None else message.body["id"]
        self.key, self.token, self.sent = "", None, message
        """of the request as the server gets it"""
        if message is not None:
            self.sent = session.renamed(message) if session.is_shared else message
            self.key, self.token = key_of(self.sent.body["id"]), _token_of(message.body)
            self.sent.about = self.key

    def begin(self) -> None:
        assert self.sent is not None
        self._session.from_client(self.sent)

    def put(self, message: Message) -> None:
        """Queue a message for the client, with the id and the progress token that it knows."""
        body = message.body
        if self._session.is_shared and self._message is not None:
            params = params_of(body)
            if is_answer(body):
                message = replace_id(message, self.id)
            elif "progressToken" in params and self.token is not None:
                message = Message.of({**body, "params": {**params, "progressToken": self.token[0]}})
            elif _SUBSCRIPTION in (meta := meta_of(body)):
                message = Message.of({**body, "params": {**params, "_meta": {**meta, _SUBSCRIPTION: self.id}}})
        if is_answer(body) or self.messages.qsize() < MOST_QUEUED:
            self.messages.put(message)
        else:
            _log.warning("a client does not read what the server says: a message is dropped")

    def is_answered_by(self, message: Message) -> bool:
        return self._message is not None and is_answer(message.body) and key_of(message.body["id"]) == key_of(self.id)

    def cancel(self) -> None:
        """The client has gone: since 2026-07-28 that cancels its request."""
        if self._session.is_shared and self.sent is not None:
            params = {"requestId": self.sent.body["id"], "reason": "the client has closed the connection"}
            body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            self._session.from_client(Message(encode(body), body))


class HttpSession:
    def __init__(self, settings: Settings, *, id: str | None, session: str | None = None) -> None:
        """`id`: None if requests stand alone. `session`: of the guard. Raises OSError."""
        self.id, self.is_shared = id, id is None
        self.used_at = time.monotonic()
        self._lock = threading.Lock()
        self._exchanges: dict[str, Exchange] = {}
        self._stream: Exchange | None = None
        self._numbers = 0
        self._unsent: list[Message] = []
        """for the client's stream, which is not open yet"""
        self.is_over = False
        self._connection = Connection(settings, self._to_client, session=session)
        self._connection.start(self._ended)

    @property
    def is_idle(self) -> bool:
        return not self._exchanges and self._stream is None

    def from_client(self, message: Message) -> None:
        self.used_at = time.monotonic()
        self._connection.from_client(message)

    def renamed(self, message: Message) -> Message:
        """The request under an id, and a progress token, that no other client uses."""
        with self._lock:
            self._numbers += 1
            id = self._numbers
        params, token = params_of(message.body), _token_of(message.body)
        if token is None:
            return replace_id(message, id)
        meta = {**params["_meta"], "progressToken": id}
        return Message.of({**message.body, "id": id, "params": {**params, "_meta": meta}})

    @contextmanager
    def exchange(self, message: Message) -> Iterator[Exchange]:
        exchange = Exchange(self, message)
        with self._lock:
            self._exchanges[exchange.key] = exchange
            if self.is_over:
                exchange.messages.put(None)
        try:
            yield exchange
        finally:
            with self._lock:
                if self._exchanges.get(exchange.key) is exchange:
                    del self._exchanges[exchange.key]

    @contextmanager
    def listen(self) -> Iterator[Exchange | None]:
        """The stream for messages that belong to no request; None if there is one."""
        with self._lock:
            exchange = None if self._stream is not None else Exchange(self, None)
            self._stream = self._stream or exchange
            if exchange is not None:
                for message in self._unsent:
                    exchange.messages.put(message)
                self._unsent = []
                if self.is_over:
                    exchange.messages.put(None)
        try:
            yield exchange
        finally:
            with self._lock:
                if exchange is not None:
                    self._stream = None

    def _to_client(self, message: Message) -> None:
        body = message.body
        with self._lock:
            target = self._target(body, message.about)
            if target is None:
                if not is_answer(body) and len(self._unsent) < MOST_SHARED and not self.is_shared:
                    self._unsent.append(message)
                return
        target.put(message)

    def _target(self, body: Any, about: str | None) -> Exchange | None:
        """An answer goes to its request, and so does its progress. Anything else goes to the only request that is open,
        so that it stays in order, or to the stream. A question without a stream goes to any request, so that it is
        asked at all."""
        if is_answer(body):
            return self._exchanges.pop(key_of(body["id"]), None)  # nothing comes after it
        if about in self._exchanges:
            return self._exchanges[about]
        token = params_of(body).get("progressToken", meta_of(body).get(_SUBSCRIPTION))
        for exchange in self._exchanges.values():
            own = exchange.sent.body["id"] if self.is_shared and exchange.sent is not None else None
            if token is not None and (token == own if self.is_shared else (token,) == exchange.token):
                return exchange
        if len(self._exchanges) != 1 and self._stream is not None:
            return self._stream
        if len(self._exchanges) == 1 or (self._exchanges and is_request(body)):
            return next(reversed(self._exchanges.values()))
        return None

    def status_of(self, error: Any) -> int:
        """The HTTP status of an error, which requests that stand alone have."""
        code = error.get("code") if isinstance(error, dict) else None
        if not self.is_shared:
            return 200
        if code == METHOD_NOT_FOUND:
            return 404
        return 400 if code in (-32600, -32602, -32020, -32021, -32022) else 200

    def _ended(self) -> None:
        with self._lock:
            self.is_over = True
            for exchange in (*self._exchanges.values(), *([self._stream] if self._stream else [])):
                exchange.messages.put(None)

    def close(self) -> None:
        self._ended()
        self._connection.close()


class SessionTable:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sessions: dict[str, HttpSession] = {}
        self._shared: dict[str, HttpSession] = {}
        self._lock = threading.Lock()

    def begin(self) -> HttpSession:
        """A new session. Raises OSError."""
        session = HttpSession(self._settings, id=secrets.token_urlsafe(24))
        assert session.id is not None
        with self._lock:
            self._sessions[session.id] = session
            idle = sorted((one for one in self._sessions.values() if one.is_idle), key=lambda one: one.used_at)
            over = [one for one in self._sessions.values() if one.is_over]
            over += idle[: max(0, len(self._sessions) - len(over) - MOST_SESSIONS)]
            for one in over:
                self._sessions.pop(str(one.id), None)
        for one in over:
            one.close()
        return session

    def shared(self, name: str) -> HttpSession:
        """The connection of requests that stand alone, in the session of the guard with this name. Raises OSError."""
        with self._lock:
            found = self._shared.get(name)
            if found is None or found.is_over:
                if len(self._shared) >= MOST_SHARED:
                    raise OSError("too many sessions")
                found = HttpSession(self._settings, id=None, session=f"mcp-{name}" if name else None)
                self._shared[name] = found
            return found

    def get(self, id: str) -> HttpSession | None:
        found = self._sessions.get(id)
        return None if found is None or found.is_over else found

    def end(self, id: str) -> bool:
        with self._lock:
            found = self._sessions.pop(id, None)
        if found is not None:
            found.close()
        return found is not None

    def close(self) -> None:
        for session in [*self._sessions.values(), *self._shared.values()]:
            session.close()


def _token_of(body: Any) -> tuple[Any] | None:
    meta = meta_of(body)
    return (meta["progressToken"],) if "progressToken" in meta else None
