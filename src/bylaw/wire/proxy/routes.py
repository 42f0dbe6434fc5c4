"""What a request to the proxy asks for, read from its target alone.

| target                                        | is                                          |
|-----------------------------------------------|---------------------------------------------|
| `/openai/v1/…`, `/anthropic/…`                | a model's API, forwarded to its upstream    |
| `/mcp/NAME`, `/mcp-stdio/NAME`                | an MCP server, by HTTP or through the bridge |
| `http://host/…`                               | a forward proxy's request                   |
| `http://this proxy/…`                         | one of the first two, sent as a proxy's     |

Each of the first two may stand behind `/run/TOKEN`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from bylaw.wire.proxy.http1 import Request


class Route(Struct, frozen=True):
    kind: Literal["model", "mcp", "mcp-stdio", "forward", "unknown"]
    name: str = ""
    """of the provider or of the MCP server"""
    rest: str = ""
    """the path and query behind the name; the whole URL of a forwarded request"""
    token: str | None = None


def route_of(request: Request, *, own: frozenset[str]) -> Route:
    """`own` holds the names of the proxy itself, as `host:port`."""
    target, token = request.target, token_of(request)
    if not target.startswith("/"):
        parts = urlsplit(target)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return Route("unknown", rest=target, token=token)
        if parts.netloc.rpartition("@")[2] not in own:
            return Route("forward", rest=target, token=token)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    path, mark, query = target.partition("?")
    steps = path.split("/")[1:]
    if len(steps) > 2 and steps[0] == "run":
        token, steps = steps[1], steps[2:]
    if steps[0] in ("openai", "anthropic"):
        return Route("model", steps[0], "/" + "/".join(steps[1:]) + mark + query, token)
    if steps[0] in ("mcp", "mcp-stdio") and len(steps) > 1:
        behind = "/".join(steps[2:])
        kind: Literal["mcp", "mcp-stdio"] = "mcp" if steps[0] == "mcp" else "mcp-stdio"
        return Route(kind, steps[1], (f"/{behind}" if behind else "") + mark + query, token)
    return Route("unknown", rest=target, token=token)


def token_of(request: Request) -> str | None:
    """The token that a client sends as the password of its proxy."""
    scheme, _, given = request.header("proxy-authorization").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, token = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return token if user == "run" else None
