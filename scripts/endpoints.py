"""The page `docs/reference/service.md`, from the declarations of the service's endpoints."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any

from bylaw.guard.service.api import document
from bylaw.guard.service.api.routes import ENDPOINTS

INTRODUCTION = """\
Every endpoint of `bylaw guard serve`, with its parameters. Use this page if you call the service by HTTP, for example
from a language other than Python. [The guard as a service](../service.md) shows how to start it and has examples. A
running service has the whole description, answers included, at `/v1/openapi.json` (OpenAPI 3.1).

Each request needs the header `Authorization: Bearer KEY`, with a key of the scope that the endpoint names: `agent` to
ask about calls, `operator` to read and to answer reviews, `admin` to change rules and keys. A body is JSON; an unknown
member of a body or of a query is an error. A failure is answered with `{"error": {"code", "message"}}`, and with
`diagnostics` if rules cannot be used.

Unless a table below says otherwise, a parameter has this meaning:

| name | meaning |
|---|---|
| `session` | the user's task that the call belongs to, such as a ticket |
| `agent` | the agent that makes the call; a key for one agent need not give it |
| `run`, `parent_run` | the run of the agent inside the session, and the run that started it |
| `call_id` | the id of the call; the answer of `/v1/decide` has one |
| `rule` | the id of a rule |
| `note`, `why` | a text for the audit |
| `since`, `until` | seconds since 1970 |
| `before` | a number of a row: only older rows are listed, for the next page |
| `limit` | how many items are listed, at most 1000 |
| `buckets` | the number of equal intervals of time |"""


def page() -> str:
    return "\n".join(_lines(document(ENDPOINTS))) + "\n"


def _lines(described: dict[str, Any]) -> Iterator[str]:
    yield "# The service: endpoints\n"
    yield INTRODUCTION
    schemas = described["components"]["schemas"]
    for tag in described["tags"]:
        of = [
            (method.upper(), path, operation)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        ]
        yield f"\n## {tag['name'].capitalize()}\n\n{_sentence(tag['description'])}\n"
        for method, path, operation in of:
            yield from _operation(method, path, operation, schemas)


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    scope = operation.get("x-scope")
    yield f"### `{method} {path}`\n"
    yield f"{_sentence(operation['summary'])} {f'Scope `{scope}`.' if scope else 'Needs no key.'}\n"
    fields = [
        (one["name"], one["required"], one["schema"]) for one in operation.get("parameters", ()) if one["in"] == "query"
    ]
    where, texts = "query", _descriptions(method, path)
    if "requestBody" in operation:
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        body = schemas[name]
        fields = [(key, key in body.get("required", ()), one) for key, one in body["properties"].items()]
        where = "body"
    if fields:
        yield f"| {where} | type | |\n|---|---|---|"
        for key, required, one in fields:
            default = "required" if required else _default(one)
            yield f"| `{key}` | {_type(one)} | {'; '.join(filter(None, (default, texts.get(key))))} |"
        yield ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")


def _descriptions(method: str, path: str) -> dict[str, str]:
    """The text under each field of the query and of the body of an endpoint."""
    found: dict[str, str] = {}
    for one in ENDPOINTS:
        if (one.method, f"/v1{one.path}") == (method, path):
            kinds = [base for kind in (one.query, one.body) if kind for base in reversed(kind.__mro__)]
            for kind in kinds:
                if kind.__module__.startswith("bylaw."):
                    found |= _texts_of(kind)
    return found


def _texts_of(kind: type) -> dict[str, str]:
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return (
        ""
        if value is None or value in ([], (), {}, "")
        else f"default `{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"] if one is not None)
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one != {"type": "null"})
    kind = schema.get("type", "any JSON")
    if kind == "array" and "items" in schema:
        return f"list of {_type(schema['items'])}"
    return str(kind)
