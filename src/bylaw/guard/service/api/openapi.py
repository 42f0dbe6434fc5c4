"""The OpenAPI 3.1 document, made of the declarations that validate requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from bylaw.guard.service.api.declare import Endpoint, Nothing
from bylaw.guard.service.messages import Health
from bylaw.guard.service.updates import Update

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
    "calls": "what an agent's host asks: may this call run, and what became of it",
    "reviews": "calls that wait for a person",
    "tasks": "reviews and alerts together",
    "incidents": "rules that were broken",
    "sessions": "user tasks with their runs and calls",
    "decisions": "what was decided",
    "rules": "what is in force, and what could be",
    "proposals": "rules that the record suggests",
    "audit": "the record, and whether it is intact",
    "agents": "agents, their versions and switches",
    "notifications": "what people were told",
    "keys": "who may use the service",
    "jobs": "other jobs of Bylaw",
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
    names = re.findall(r"{(\w+)}", one.path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in names
    ]
    plain = {"type": "string"} if one.media != "application/json" else schemas[repr(one.returns)]
    operation: dict[str, Any] = {
        "operationId": operation_id(one),
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


def operation_id(one: Endpoint) -> str:
    words = re.sub(r"{\w+}", "one", one.path).strip("/").replace("/", "_")
    verb = {"GET": "get", "POST": "post", "DELETE": "delete"}[one.method]
    return f"{verb}_{words}"


def _query(one: Endpoint) -> list[dict[str, Any]]:
    if one.query is Nothing:
        return []
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
                "summary": "updates as they happen (server-sent events); each `data` is an Update",
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
                "summary": "does the process answer?",
                "responses": {"200": {"description": "it does", **health}},
                **about,
            }
        },
        "/readyz": {
            "get": {
                "operationId": "get_readyz",
                "summary": "can it decide?",
                "responses": {
                    "200": {"description": "it can", **health},
                    "503": {"description": "it cannot", **health},
                },
                **about,
            }
        },
    }
