"""What model providers say on the wire: one file a format, each able to read, alter, stream and fail as it does.

A reply is handled as the JSON object that the provider answers without streaming; a streamed reply is collected into
that object and told again event by event, so that each fault is written once and looks right in both.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from bylaw.adapters.live.exchanges.base import Outgoing
from bylaw.adapters.live.wire.anthropic_messages import AnthropicMessages
from bylaw.adapters.live.wire.base import Json, Wire
from bylaw.adapters.live.wire.openai_chat import OpenAiChat
from bylaw.adapters.live.wire.openai_responses import OpenAiResponses

WIRES: tuple[Wire, ...] = (OpenAiChat(), OpenAiResponses(), AnthropicMessages())


def model_call(request: Outgoing) -> tuple[Wire, Json] | None:
    """The format and the JSON of a request to a model; None for any other request."""
    if request.method != "POST":
        return None
    path = urlsplit(request.url).path.rstrip("/")
    wire = next((wire for wire in WIRES if path.endswith(wire.path)), None)
    if wire is None:
        return None
    try:
        body = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (wire, body) if isinstance(body, dict) and wire.asks(body) else None


def wire_named(name: str) -> Wire:
    return next(wire for wire in WIRES if wire.name == name)
