"""The wire formats of model providers, one file each: read, change, stream and fail as the provider does.

A reply is handled as the JSON object that the provider sends without streaming. A streamed reply is collected into that
object and streamed again, so that each fault is written once and works for both.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from bylaw.wire.exchange import Outgoing, json_of
from bylaw.wire.formats.anthropic_messages import AnthropicMessages
from bylaw.wire.formats.base import Json, WireFormat
from bylaw.wire.formats.openai import OpenAiChat, OpenAiResponses

FORMATS: tuple[WireFormat, ...] = (OpenAiChat(), OpenAiResponses(), AnthropicMessages())


def format_at(method: str, url: str) -> WireFormat | None:
    """The format of requests to this URL if they ask a model; None if they cannot."""
    if method != "POST":
        return None
    try:
        path = urlsplit(url).path.rstrip("/")
    except ValueError:  # not a valid URL
        return None
    return next((wire for wire in FORMATS if path.endswith(wire.path)), None)


def model_call(request: Outgoing) -> tuple[WireFormat, Json] | None:
    """The format and the JSON of a request to a model; None for any other request."""
    wire = format_at(request.method, request.url)
    if wire is None:
        return None
    body = json_of(request.body)
    return (wire, body) if isinstance(body, dict) and wire.matches(body) else None


def is_unread_call(request: Outgoing) -> bool:
    """Whether a request goes where models are asked, and says that it is JSON, and cannot be read."""
    if "json" not in request.headers.get("content-type", "") or format_at(request.method, request.url) is None:
        return False
    return json_of(request.body) is msgspec.UNSET


def format_named(name: str) -> WireFormat:
    return next(wire for wire in FORMATS if wire.name == name)
