"""The page `docs/reference/service.md`, from the declarations of the service's endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.guard.service.api import document
from bylaw.guard.service.api.routes import ENDPOINTS

INTRODUCTION = """\
`/v1/openapi.json` is the whole document; this page is made of the same declarations. [How to use them](../service.md).

A request has `Authorization: Bearer KEY`, and its body is JSON. Keys that nobody knows are refused. Failures are
`{"error": {"code", "message"}}`; where rules cannot be used, with `diagnostics`."""


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
        yield f"\n## {tag['name'].capitalize()}\n\n{tag['description'].capitalize()}.\n"
        for method, path, operation in of:
            yield from _operation(method, path, operation, schemas)


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    scope = operation.get("x-scope")
    yield f"### `{method} {path}`\n"
    summary = operation["summary"].removesuffix("?")
    end = "?" if summary != operation["summary"] else "."
    yield f"{summary[0].upper()}{summary[1:]}{end} {f'Scope `{scope}`.' if scope else 'Without a key.'}\n"
    fields = [
        (one["name"], one["required"], one["schema"]) for one in operation.get("parameters", ()) if one["in"] == "query"
    ]
    where = "query"
    if "requestBody" in operation:
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        body = schemas[name]
        fields = [(key, key in body.get("required", ()), one) for key, one in body["properties"].items()]
        where = "body"
    if fields:
        yield f"| {where} | type | |\n|---|---|---|"
        for key, required, one in fields:
            default = "required" if required else _default(one)
            yield f"| `{key}` | {_type(one)} | {default} |"
        yield ""


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
