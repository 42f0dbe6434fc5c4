"""HTTP headers that repeat parts of a message, since 2026-07-28: the method, the name, and arguments that a tool marks.

They are made from the message itself and never copied from a client: a server, or a gateway before it, may look only at
the headers, and must not see another tool there than the one that was decided.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bylaw.guard.integrations.mcp.messages import HANDSHAKE_VERSIONS, params_of, version_of

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""which parameter a method repeats"""
_SAFE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?|")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MOST_LEVELS = 16


def routing_headers(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, str]:
    """`schemas`: of the arguments of tools, as far as they are known."""
    method, version, params = body.get("method"), version_of(body), params_of(body)
    if not isinstance(method, str) or version is None or version in HANDSHAKE_VERSIONS:
        return {}
    headers = {"mcp-protocol-version": version, "mcp-method": method}
    name = params.get(NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = encode_value(name)
        if method == "tools/call":
            arguments = params.get("arguments")
            headers |= dict(_of_arguments(schemas.get(name), arguments if isinstance(arguments, dict) else {}))
    return headers


def _of_arguments(schema: Any, arguments: Mapping[str, Any], level: int = 0) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or level > _MOST_LEVELS:
        return
    for name, inner in properties.items():
        value = arguments.get(name)
        if value is None or not isinstance(inner, dict):
            continue
        header = inner.get("x-mcp-header")
        if isinstance(header, str) and _TOKEN.fullmatch(header) and isinstance(value, str | int):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield f"mcp-param-{header.lower()}", encode_value(text)
        elif isinstance(value, dict):
            yield from _of_arguments(inner, value, level + 1)


def encode_value(text: str) -> str:
    """As it is if a header can hold it, else in Base64."""
    if _SAFE.fullmatch(text) and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def decode_value(text: str) -> str | None:
    """None if it is not what `encode_value` writes."""
    if not _ENCODED.fullmatch(text):
        return text
    try:
        found = base64.b64decode(text[9:-2], validate=True).decode("utf-8")
    except ValueError:
        return None
    return found if encode_value(found) == text else None
