"""The JSON API: `/v1/…`.

Each endpoint is a function, whose annotations say what it takes and returns. Requests are validated by these
declarations, and the OpenAPI 3.1 document is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from types import NoneType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

from bylaw.guard.service.auth import Principal
from bylaw.guard.service.context import Context, Update
from bylaw.guard.service.messages import Health
from bylaw.guard.service.operations import Operations
from bylaw.guard.stores.records import Scope

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Any], Any])
Method: TypeAlias = Literal["GET", "POST", "DELETE"]


class Given(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a client, in the body or in the query; unknown keys are refused."""


class Nothing(Given, frozen=True, kw_only=True):
    """No query, or an empty body."""


class Items(Struct, Generic[T], frozen=True):
    items: Sequence[T]


class Done(Struct, frozen=True):
    ok: bool = True


class Asked(Struct, Generic[T], frozen=True, kw_only=True):
    """One authorized request."""

    context: Context
    who: Principal
    path: dict[str, str]
    given: T
    """the query of a GET, or the body of a POST"""

    @property
    def operations(self) -> Operations:
        return self.context.operations

    @property
    def by(self) -> str:
        return self.who.name

    @property
    def id(self) -> str:
        return self.path["id"]


class Endpoint(Struct, frozen=True, kw_only=True):
    method: Method
    path: str
    """such as `/reviews/{id}`, below `/v1`"""
    scope: Scope
    summary: str
    call: Callable[[Asked[Any]], Any]
    """blocks, and runs in a thread; an `async` function runs in the event loop"""
    body: Any = None
    query: type[Given] = Nothing
    returns: Any = Done
    noun: str
    """by which the document groups endpoints"""
    fails: tuple[int, ...] = ()
    """HTTP statuses that it answers beside those of every endpoint"""
    quick: bool = False
    """whether it is over in a fraction of a millisecond, as a decision is"""
    heavy: bool = False
    """whether it reads much of the record; one of these runs at a time"""
    media: str = "application/json"
    """of the answer"""


class Group:
    """Declares the endpoints of one noun, in the order of their functions."""

    def __init__(self, endpoints: list[Endpoint], noun: str, scope: Scope, **shared: Any) -> None:
        """`shared`: fields of all its endpoints, unless one says otherwise."""
        self._endpoints, self._shared = endpoints, {"noun": noun, "scope": scope, **shared}

    def get(self, path: str, summary: str, **more: Any) -> Callable[[F], F]:
        return self._declare("GET", path, summary, more)

    def post(self, path: str, summary: str, **more: Any) -> Callable[[F], F]:
        return self._declare("POST", path, summary, more)

    def delete(self, path: str, summary: str, **more: Any) -> Callable[[F], F]:
        return self._declare("DELETE", path, summary, more)

    def _declare(self, method: Method, path: str, summary: str, more: dict[str, Any]) -> Callable[[F], F]:
        def declare(function: F) -> F:
            hints = get_type_hints(function)
            [given] = get_args(hints["asked"])
            types = {"returns": hints["return"]}
            if given is not NoneType:
                types["query" if method == "GET" else "body"] = given
            fields = {**self._shared, **types, **more}
            self._endpoints.append(Endpoint(method=method, path=path, summary=summary, call=function, **fields))
            return function

        return declare


_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 413, 415, 429, 431, 503)
_STATUSES = {
    400: "the request is not valid",
    401: "no key, or one that is not valid",
    403: "the key may not do this",
    404: "there is no such thing",
    409: "somebody else was faster, or the state does not allow it",
    413: "the request is too large",
    415: "the body is not JSON",
    422: "the rules, or the trace, cannot be used: `diagnostics` says why",
    429: "too many requests",
    431: "the address and the headers are too large",
    503: "the store cannot be used; try again",
}
_NOUNS = {
    "calls": "ask whether a tool call may run, and report what happened to it; for programs that run agents",
    "reviews": "calls that wait for a person",
    "tasks": "everything that waits for a person: reviews and alerts together",
    "incidents": "broken rules that the follow-up has found",
    "sessions": "user tasks with their runs and calls",
    "decisions": "decisions of the guard about tool calls",
    "rules": "the rules in force, their versions, and changes to them",
    "proposals": "rules that the recorded traffic suggests",
    "audit": "the record of all attempts and decisions, and whether it is intact",
    "agents": "agents, their versions and switches",
    "notifications": "messages that were sent to people",
    "keys": "who may use the service",
    "jobs": "other commands of Bylaw as requests",
    "service": "the service itself",
}


class Problem(msgspec.Struct, frozen=True):
    code: str
    message: str


class Error(msgspec.Struct, frozen=True):
    error: Problem


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    kinds: list[Any] = [Error, Health, Update]
    for one in endpoints:
        kinds += [one.returns] + ([one.body] if one.body is not None else [])
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    by_kind = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for one in endpoints:
        paths.setdefault(f"/v1{one.path}", {})[one.method.lower()] = _operation(one, by_kind)
    paths |= _others(by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Bylaw guard",
            "version": version("bylaw"),
            "description": "May this tool call run, right now? One engine, the same answer as in process.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "tags": [{"name": name, "description": text} for name, text in _NOUNS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "`bylaw guard keys create`"}
            },
        },
    }


def _operation(one: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    words = re.sub(r"{\w+}", "one", one.path).strip("/").replace("/", "_")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    plain = {"type": "string"} if one.media != "application/json" else schemas[repr(one.returns)]
    operation: dict[str, Any] = {
        "operationId": f"{one.method.lower()}_{words}",
        "summary": one.summary,
        "tags": [one.noun],
        "x-scope": one.scope,
        "parameters": parameters + _query(one),
        "responses": {
            "200": {"description": "done", "content": {one.media: {"schema": plain}}},
            **{str(status): _failure(status, schemas) for status in sorted({*_ALWAYS, *one.fails})},
        },
    }
    if one.body is not None:
        content = {"application/json": {"schema": schemas[repr(one.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _query(one: Endpoint) -> list[dict[str, Any]]:
    _, found = msgspec.json.schema_components([one.query], ref_template=_REF)
    schema = found[one.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _not_null(shape)}
        for name, shape in schema["properties"].items()
    ]


def _not_null(shape: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out has no value; there is no null in a query."""
    shape = {key: value for key, value in shape.items() if not (key == "default" and value is None)}
    options = [one for one in shape.get("anyOf", ()) if one != {"type": "null"}]
    if len(options) == 1 and len(shape["anyOf"]) == 2:
        rest = {key: value for key, value in shape.items() if key != "anyOf"}
        return {**options[0], **rest}
    if None in shape.get("enum", ()):
        return {**shape, "enum": [value for value in shape["enum"] if value is not None]}
    return shape


def _failure(status: int, schemas: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schemas[repr(Error)]}}
    return {"description": _STATUSES[status], "content": content}


def _others(schemas: dict[str, Any]) -> dict[str, Any]:
    health = {"content": {"application/json": {"schema": schemas[repr(Health)]}}}
    about: dict[str, Any] = {"tags": ["service"], "security": []}
    return {
        "/v1/stream": {
            "get": {
                "operationId": "get_stream",
                "summary": "receive updates as they happen (server-sent events)",
                "tags": ["service"],
                "x-scope": "operator",
                "parameters": [
                    {"name": "after", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 0}}
                ],
                "responses": {
                    "200": {"description": "events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
                    **{str(status): _failure(status, schemas) for status in (400, 401, 403, 429)},
                },
            }
        },
        "/healthz": {
            "get": {
                "operationId": "get_healthz",
                "summary": "report whether the process answers",
                "responses": {"200": {"description": "it does", **health}},
                **about,
            }
        },
        "/readyz": {
            "get": {
                "operationId": "get_readyz",
                "summary": "report whether the service can decide",
                "responses": {
                    "200": {"description": "it can", **health},
                    "503": {"description": "it cannot", **health},
                },
                **about,
            }
        },
    }
