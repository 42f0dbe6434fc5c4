"""The gate before every request: its size and speed, who asks, forged forms, too many requests; and the headers of
every answer. Plain ASGI, since it stands before each decision.

Before it is the HTTP protocol of uvicorn, with limits on how slowly the head of a request may arrive, and on its size;
and with a short way for whole answers, since uvicorn sends the head and the body separately: each wakes the client.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Generator
from contextlib import suppress
from functools import partial
from types import coroutine
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bylaw.guard.service.auth import Principal, Rates, csrf_token, is_same_token
from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import (
    BadRequest,
    Forbidden,
    HeadersTooLarge,
    ServiceError,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
)
from bylaw.guard.stores.ports import StoreUnavailable

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol

    IS_BOUNDED = False
except ImportError:  # httptools is faster, and not needed
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol  # type: ignore[assignment]

    IS_BOUNDED = True
    """whether the parser itself bounds what it holds: h11 does, and httptools does not"""

LOGIN = "__Host-bylaw"
FORMS = "__Host-bylaw-forms"
"""cookies: who has signed in; and what forms are bound to if a proxy says who it is"""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PROBES = frozenset({"/healthz", "/readyz"})
"""answered at any rate and whatever key they come with: else a flood of requests would look like a failure"""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with `no-referrer` a browser sends forms with `Origin: null`
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
HEADER_NAMES = frozenset(name for name, _ in HEADERS)
STRICT = (b"strict-transport-security", b"max-age=31536000")
JSON = b"application/json"
AT_ONCE = "bylaw.answer"
"""the ASGI extension that writes a whole answer: `(head, body) -> whether it was written`"""
OK = b"HTTP/1.1 200 OK\r\n"
HEAD_SECONDS = 10.0
LARGEST_HEAD = 64 << 10
"""bytes of the address and the headers of a request; the gate refuses those that arrived at once"""


def _lines(*headers: tuple[bytes, bytes]) -> bytes:
    return b"".join(b"%b: %b\r\n" % one for one in headers)


_WHOLE = {"http": _lines((b"content-type", JSON), *HEADERS)}
_WHOLE["https"] = _WHOLE["http"] + _lines(STRICT)
_NONE: dict[str, Any] = {}


class Connection(Protocol):
    """Closes a connection on which a request has begun and its head is not complete in time."""

    running: ClassVar[Collection[Any]] = ()
    """the requests that this process is answering"""
    _slow: asyncio.TimerHandle | None = None
    _held = 0
    """bytes that arrived since the parser has handed anything on: a head, or the headers after a body"""

    @property
    def _waits(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        Connection.running = self.tasks
        self._slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        if not IS_BOUNDED:
            self._held += len(data)
        super().data_received(data)
        if self._held > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")
            return
        waits = self._waits
        if not waits and self._slow is not None:
            self._slow.cancel()
            self._slow = None
        elif waits and self._slow is None:
            self._slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        self._held = 0
        super().on_headers_complete()
        self.scope["extensions"] = {AT_ONCE: partial(self._answer, self.cycle)}  # type: ignore[dict-item]

    def _answer(self, cycle: Any, head: bytes, body: bytes) -> bool:
        """Write a whole answer with the status 200. Returns False if it has to be sent in the usual way."""
        if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        cycle.response_started = cycle.response_complete = True
        named = b"".join([b"%b: %b\r\n" % one for one in self.server_state.default_headers])
        self.transport.write(b"%b%b%bcontent-length: %d\r\n\r\n%b" % (OK, named, head, len(body), body))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def on_body(self, body: bytes) -> None:
        self._held = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._held = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._slow is not None:
            self._slow.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        self._slow = None
        if self._waits:
            self.transport.close()


class Gate:
    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app, self._context = app, context
        self._rates = Rates(context.settings.rate, context.settings.burst, context.moments)
        context.decisions.running = lambda: Connection.running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        answer = state["answer"] = HeaderSender(scope, send)
        try:
            _check_head(scope)
            body = Body(receive, scope, self._context)
            principal = state["principal"] = self._known(scope)
            if principal is not None and principal.via != "key":
                await self._check_form(scope, body, principal)
            # past the router, which tries one path after the other
            app = self._context.direct.get((scope["method"], scope["path"]), self._app)
            await app(scope, body.receive, answer.send)
        except Exception as problem:
            failure = problem if isinstance(problem, ServiceError) else None
            if isinstance(problem, StoreUnavailable):
                failure = Unavailable(str(problem))
            if not answer.started:
                shown = failure or ServiceError("something went wrong in the service; its log says what")
                await error_response(scope, shown)(scope, receive, answer.send)
                if failure is not None:
                    return
            raise  # for the log

    # -- who asks -------------------------------------------------------------------------------------------------

    def _known(self, scope: Scope) -> Principal | None:
        """Whoever is known has a rate of their own; requests of all others count for their address."""
        if scope["path"] in PROBES:
            return None
        address = f"address {scope['client'][0] if scope.get('client') else 'unix'}"
        try:
            principal = self._identify(scope, address)
        except Unauthorized:
            self._rates.spend(address)
            raise
        self._rates.spend(address if principal is None else principal.id)
        return principal

    def _may_look_up(self, key: str, address: str) -> bool:
        """An address that has tried too many keys makes the store search for no more of them. Valid keys of the same
        address still work: they are in a list."""
        return self._rates.has_left(address) or self._context.credentials.is_listed(key)

    def _identify(self, scope: Scope, address: str) -> Principal | None:
        """A key, then a login, then whom a trusted proxy names. A key that is not valid is refused, whatever else the
        request has."""
        context = self._context
        keys = [value for name, value in scope["headers"] if name == b"authorization"]
        if keys:
            kind, _, key = keys[0].decode("latin-1").partition(" ")
            if len(keys) > 1 or kind.lower() != "bearer":
                raise Unauthorized("expected one header `Authorization: Bearer KEY`")
            key = key.strip()
            if not self._may_look_up(key, address):
                raise TooMany("too many requests; wait a moment", retry_after=1)
            return context.credentials.check(key)
        connection = HTTPConnection(scope)
        login = connection.cookies.get(LOGIN)
        if login and self._may_look_up(login, address):
            with suppress(Unauthorized):  # an old cookie; the request may do without
                return context.credentials.check(login, kind="login")
        peer = scope["client"][0] if scope.get("client") else None
        people = context.people
        if any(
            name and len(connection.headers.getlist(name)) > 1 for name in (people.user_header, people.groups_header)
        ):
            return None  # one of them may be the client's own
        return people.forwarded(peer, connection.headers)

    async def _check_form(self, scope: Scope, body: Body, principal: Principal) -> None:
        """A browser sends cookies along with requests that another site has made. Those of our own pages bring a token
        along, in the header `X-CSRF-Token` or the field `csrf_token`."""
        connection = HTTPConnection(scope)
        secret = connection.cookies.get(LOGIN if principal.via == "login" else FORMS)
        if not secret:
            secret = secrets.token_urlsafe(32)
            scope["state"]["new_forms_cookie"] = secret
        token = scope["state"]["csrf"] = csrf_token(secret)
        if scope["method"] in SAFE:
            return
        headers = connection.headers
        check_site(headers)
        given = headers.get("x-csrf-token")
        if given is None and headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            fields = parse_qs((await body.whole()).decode("utf-8", "replace"), max_num_fields=1000)
            given = fields.get("csrf_token", [""])[0]
        if not is_same_token(given or "", token):
            raise Forbidden("the form has no valid token; load the page again")


def check_site(headers: Headers) -> None:
    """Raises Forbidden for a form of another site."""
    origin = headers.get("origin")
    try:
        is_own = origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # not an address
        is_own = False
    if not is_own or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("this form was sent by another site")


def _check_head(scope: Scope) -> None:
    size = len(scope["path"]) + len(scope["query_string"])
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4
    if size > LARGEST_HEAD:
        raise HeadersTooLarge(f"the head of a request has at most {LARGEST_HEAD:,} bytes")


class HeaderSender:
    """Adds the headers that every answer has."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            given = list(message.get("headers", ()))
            own = [name.lower() for name, _ in given if name.lower() in HEADER_NAMES]
            message["headers"] = given + ([one for one in HEADERS if one[0] not in own] if own else HEADERS)
            cookie = self._scope["state"].get("new_forms_cookie")
            if cookie:
                text = f"{FORMS}={cookie}; Path=/; Secure; HttpOnly; SameSite=Lax"
                message["headers"].append((b"set-cookie", text.encode()))
            if self._scope["scheme"] == "https":
                message["headers"].append(STRICT)
        await self._send(message)

    async def json(self, body: bytes) -> None:
        """A whole answer."""
        scope = self._scope
        write = scope.get("extensions", _NONE).get(AT_ONCE)
        if write is None or "new_forms_cookie" in scope["state"] or not write(_WHOLE[scope["scheme"]], body):
            headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body))]
            await self.send({"type": "http.response.start", "status": 200, "headers": headers})
            await self.send({"type": "http.response.body", "body": body})
        self.started = True


class Body:
    """The body of a request, within the limits on its size and its time."""

    def __init__(self, receive: Receive, scope: Scope, context: Context) -> None:
        self._receive, self._left = receive, context.settings.largest_body
        self._until = time.monotonic() + context.settings.body_seconds
        self._is_over = False
        self._replay: bytes | None = None
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if lengths and (len(lengths) > 1 or not lengths[0].isdigit()):
            raise BadRequest("the header Content-Length is not a number")
        if lengths and int(lengths[0]) > self._left:
            raise TooLarge(f"a request has at most {self._left:,} bytes")

    async def receive(self) -> Message:
        if self._replay is not None:
            body, self._replay = self._replay, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._is_over:
            return await self._receive()
        waiting: Any = self._receive()
        message: Message
        try:
            first = waiting.send(None)
        except StopIteration as arrived:  # a small body comes with its head: it needs no timer
            message = arrived.value
        else:
            try:
                async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                    message = await _resume(waiting, first)
            except TimeoutError:
                raise BadRequest("the request took too long to arrive") from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise TooLarge("the request is too large")
            self._is_over = not message.get("more_body", False)
        return message

    async def whole(self) -> bytes:
        """All of it; it can be received once more."""
        parts = []
        while not self._is_over:
            message = await self.receive()
            if message["type"] != "http.request":
                raise BadRequest("the request was cut off")
            parts.append(message.get("body", b""))
        self._replay = b"".join(parts)
        return self._replay


@coroutine
def _resume(waiting: Any, first: Any) -> Generator[Any, Any, Any]:
    """Await a coroutine that has been started, and has asked to wait for `first`."""
    try:
        while True:
            try:
                sent = yield first
            except BaseException as problem:
                first = waiting.throw(problem)
            else:
                first = waiting.send(sent)
    except StopIteration as done:
        return done.value


def error_response(scope: Scope, problem: ServiceError) -> Response:
    headers = {"www-authenticate": "Bearer"} if isinstance(problem, Unauthorized) else {}
    if isinstance(problem, TooMany):
        headers["retry-after"] = "1"
    if isinstance(problem, TooLarge | HeadersTooLarge) or "too long" in problem.message:
        headers["connection"] = "close"
    if not f"{scope['path']}/".startswith("/v1/"):
        return PlainTextResponse(f"{problem.message}\n", problem.status, headers)
    details = {name: msgspec.to_builtins(value) for name, value in problem.details.items()}
    content = {"error": {"code": problem.code, "message": problem.message, **details}}
    return json_response(content, problem.status, headers)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
