"""What model providers say on the wire: one file a format, each able to read, alter, stream and fail as it does.

A reply is handled as the JSON object that the provider answers without streaming; a streamed reply is collected into
that object and told again event by event, so that each fault is written once and looks right in both.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from bylaw.wire.exchange import Outgoing
from bylaw.wire.formats.anthropic_messages import AnthropicMessages
from bylaw.wire.formats.base import Json, Wire
from bylaw.wire.formats.openai_chat import OpenAiChat
from bylaw.wire.formats.openai_responses import OpenAiResponses

WIRES: tuple[Wire, ...] = (OpenAiChat(), OpenAiResponses(), AnthropicMessages())


def wire_at(method: str, url: str) -> Wire | None:
    """The format that requests to this place have where they are to a model; None where they cannot be."""
    if method != "POST":
        return None
    try:
        path = urlsplit(url).path.rstrip("/")
    except ValueError:  # an address that leads nowhere
        return None
    return next((wire for wire in WIRES if path.endswith(wire.path)), None)


def model_call(request: Outgoing) -> tuple[Wire, Json] | None:
    """The format and the JSON of a request to a model; None for any other request."""
    wire = wire_at(request.method, request.url)
    if wire is None:
        return None
    try:
        body = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (wire, body) if isinstance(body, dict) and wire.asks(body) else None


def wire_named(name: str) -> Wire:
    return next(wire for wire in WIRES if wire.name == name)
