"""Declared endpoints as ASGI routes: read, validate, let through, call, answer."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from types import NoneType
from typing import Any, Union, get_args, get_type_hints

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from bylaw.guard.service.api import Asked, Endpoint, Nothing, calls, document, operators, rules
from bylaw.guard.service.auth import Principal
from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import BadRequest, Unauthorized, Unavailable, Unsupported
from bylaw.guard.service.gate import JSON, json_response
from bylaw.guard.service.messages import Health
from bylaw.guard.service.operations.record import encode_view
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.canonical import prepared
from bylaw.text.repeated_keys import repeated_key

ENDPOINTS = [one for part in (calls, operators, rules) for one in part.ENDPOINTS]
V1 = "/v1"
CHECK_EVERY = 1.0
"""seconds after which the credentials of a listener are checked again"""
_LONE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_decode = msgspec.json.Decoder().decode


def api_routes(context: Context) -> list[BaseRoute]:
    answers = [(one, Answer(one, context)) for one in in_order(ENDPOINTS)]
    routes: list[BaseRoute] = [Route(V1 + one.path, answer, methods=[one.method]) for one, answer in answers]
    context.direct.update({(one.method, V1 + one.path): answer for one, answer in answers if "{" not in one.path})

    async def openapi(request: Any) -> Response:
        return Response(_described(), media_type="application/json")

    async def stream(request: Any) -> Response:
        who = _let_through(request.state.principal, "operator")
        last = request.headers.get("last-event-id") or request.query_params.get("after")
        if last is not None and not (last.isascii() and last.isdigit() and len(last) < 19):
            raise BadRequest("`Last-Event-ID` is the number of an event")
        content = context.hub.stream(None if last is None else int(last))
        first = await anext(content)  # raises before the answer begins

        async def while_valid() -> Any:
            yield first
            looked = time.monotonic()
            async for one in content:
                if time.monotonic() - looked >= CHECK_EVERY:
                    if not await context.run(context.credentials.is_valid, who):
                        await content.aclose()
                        return
                    looked = time.monotonic()
                yield one

        return StreamingResponse(while_valid(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def healthz(request: Any) -> Response:
        return json_response(Health(ok=True, version=version("bylaw")))

    probe: asyncio.Future[Any] | None = None

    async def readyz(request: Any) -> Response:
        nonlocal probe
        if probe is None or probe.done():  # whoever asks meanwhile shares it: this path has no rate
            probe = asyncio.ensure_future(context.run(context.operations.guard.store.audit_head))
        try:
            await asyncio.shield(probe)
        except StoreUnavailable:  # the caller need not know more
            return json_response(Health(ok=False, version=version("bylaw"), problem="the store cannot be used"), 503)
        ready = not context.stopping.is_set()
        return json_response(
            Health(ok=ready, version=version("bylaw"), rules=context.operations.versions.in_force),
            200 if ready else 503,
        )

    async def metrics(request: Any) -> Response:
        _let_through(request.state.principal, "operator")
        counts = await context.run(context.operations.incidents.counts)
        gauges = {
            "reviews_pending": counts.reviews,
            "alerts_pending": counts.alerts,
            "incidents_open": counts.incidents,
            "streams": context.hub.listeners,
        }
        return PlainTextResponse(context.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    return [
        *routes,
        Route(f"{V1}/openapi.json", openapi),
        Route(f"{V1}/stream", stream),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]


@cache
def _described() -> bytes:
    return msgspec.json.encode(document(ENDPOINTS))


def in_order(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Fixed paths before those with a name in them, since `/tasks/counts` is no task."""
    return sorted(endpoints, key=lambda one: "{" in one.path)


class Answer:
    """One endpoint as an ASGI application."""

    def __init__(self, endpoint: Endpoint, context: Context) -> None:
        self._endpoint, self._context = endpoint, context
        self._is_async = inspect.iscoroutinefunction(endpoint.call)
        self._has_query = endpoint.query is not Nothing
        self._is_decision = endpoint.path == "/decide"
        self._path = V1 + endpoint.path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, endpoint, context = time.perf_counter(), self._endpoint, self._context
        status = 500
        try:
            with context.spans.request(endpoint.method, self._path, scope) as span:
                asked = await self._read(scope, receive)
                result = await self._run(asked)
                if self._is_decision:
                    context.metrics.decision(result["action"])
                    if span is not None:
                        span.set_attribute("bylaw.action", result["action"])
                status = 200
            if endpoint.media != "application/json":
                await StreamingResponse(result, media_type=endpoint.media)(scope, receive, send)
                return
            await scope["state"]["answer"].json(encode_view(result))
        except StoreUnavailable as problem:
            status = 503
            raise Unavailable(str(problem)) from None
        except Exception as problem:
            status = getattr(problem, "status", 500)
            raise
        finally:
            context.metrics.request(endpoint.method, self._path, status, time.perf_counter() - started)

    async def _run(self, asked: Asked[Any]) -> Any:
        endpoint, context = self._endpoint, self._context
        if endpoint.quick:
            return await context.run_quick(endpoint.call, asked)
        if endpoint.heavy:
            return await context.run_heavy(endpoint.call, asked)
        return await (endpoint.call(asked) if self._is_async else context.run(endpoint.call, asked))

    async def _read(self, scope: Scope, receive: Receive) -> Asked[Any]:
        endpoint = self._endpoint
        who = _let_through(scope["state"].get("principal"), endpoint.scope, or_operator=endpoint.path.endswith("/wait"))
        given = read_query(scope["query_string"], endpoint.query) if self._has_query or scope["query_string"] else None
        body = await _body(receive) if endpoint.method == "POST" else b""
        if endpoint.body is not None:
            if not any(name == b"content-type" and _is_json(value) for name, value in scope["headers"]):
                raise Unsupported("expected `Content-Type: application/json`")
            given = read_body(body, endpoint.body)
        elif body:
            raise BadRequest("this takes no body")
        return Asked(context=self._context, who=who, path=scope.get("path_params", {}), given=given)


def _let_through(who: Any, scope: Any, *, or_operator: bool = False) -> Principal:
    if not isinstance(who, Principal):
        raise Unauthorized("this needs a key: `Authorization: Bearer KEY`")
    if not (or_operator and who.may("operator")):
        who.require(scope)
    return who


async def _body(receive: Receive) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        return message.get("body", b"")  # type: ignore[no-any-return]
    parts = []
    while message["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()
    raise BadRequest("the request was cut off")


def _is_json(value: bytes) -> bool:
    return value == JSON or value.partition(b";")[0].strip().lower() == JSON


def read_body(body: bytes, kind: Any) -> Any:
    """Raises BadRequest, also for an object that has a key twice: nobody knows which of the two is meant."""
    try:
        value = _decode(body)
        repeated = repeated_key(body, value)
        if repeated is not None:
            raise BadRequest(f"the key `{repeated[:40]}` is given twice")
        return msgspec.convert(value, prepared(kind))
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except ValueError as problem:  # msgspec's errors are ValueErrors
        if _LONE.search(body):
            raise BadRequest("a text has half of a character: a surrogate without the other one") from None
        raise BadRequest(str(problem)) from None


def read_query(text: bytes, kind: type[Any]) -> Any:
    """Raises BadRequest."""
    given = QueryParams(text).multi_items()
    if len({name for name, _ in given}) < len(given):
        raise BadRequest("a parameter is given twice")
    types: dict[str, Any] = _parameters(kind)  # type: ignore[arg-type]
    try:
        found = {name: msgspec.convert(value, prepared(types[name]), strict=False) for name, value in given}
        return kind(**found)
    except KeyError as unknown:
        raise BadRequest(f"there is no parameter {str(unknown)[:80]}") from None
    except TypeError as missing:
        raise BadRequest(str(missing)) from None
    except ValueError as problem:
        raise BadRequest(f"in the query: {problem}") from None


@cache
def _parameters(kind: type[Any]) -> dict[str, Any]:
    """The types of parameters without `None`: one that is left out has no value, and the text `null` is a text."""
    hints = get_type_hints(kind)
    found = {}
    for name, hint in hints.items():
        options = [one for one in get_args(hint) if one is not NoneType] if NoneType in get_args(hint) else [hint]
        found[name] = Union[tuple(options)]  # noqa: UP007
    return found
