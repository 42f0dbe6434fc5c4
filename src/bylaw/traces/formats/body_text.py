"""Bodies of HTTP that a log holds as text: JSON, the events of a stream, either of them in base64, or only a part.

Loggers cut long bodies, write bytes in base64, and pack what the server packed. A body that cannot be read must not be
taken for the text of an answer.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import Any

from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.record import list_field
from bylaw.traces.formats.stream_events import is_finished

_STREAMS = ("data:", "event:", ":")
_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|$)|\[\s*\{)')
_PAGE_START = re.compile(r"\s*<(?:!doctype\s|html[\s>]|\?xml\s)", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]{16,}+={0,2}+\s*+")
_LEAST_ENCODED = 64
"""characters: shorter text may be one long word"""
_CUT_MARK = re.compile(
    r"[\[(<{*][^\[\](){}<>\n]{0,40}truncated[^\[\](){}<>\n]{0,40}[\])>}*]\s*$"
    r"|(?:\.\.\.|…)\s*[\[(<]?\s*truncated\b.{0,40}$"
    r"|(?:\.\.\.|…)\s*[\[(<]?\s*\+?\d[\d,_]*\s(?:more\s)?(?:char|byte|token)[\w\s]{0,30}[\])>]?\s*$"
    r"|[\[(<]\s*\+?\d[\d,_]*\s(?:more\s(?:char|byte|token)|(?:char|byte|token)\w*\s(?:more|omitted|skipped))\w*\s*[\])>]\s*$",
    re.IGNORECASE,
)
_MOST_UNPACKED = 1 << 26
"""bytes of a packed body"""


def read_body(value: Any) -> Any:
    """The body that a log holds as text or as bytes; any other value as it is."""
    if isinstance(value, dict) and value.get("type") == "Buffer" and list_field(value, "data"):
        try:
            value = _unpacked(bytes(value["data"]))  # how Node writes bytes
        except (ValueError, TypeError):
            return value
    if not isinstance(value, str):
        return value
    value = _decoded(value)
    if not value.startswith(_STREAMS):
        return parsed(value)
    from bylaw.wire.formats import FORMATS
    from bylaw.wire.formats.base import read_events

    events = read_events(value.encode())
    return next((reply for wire in FORMATS if (reply := wire.collect(events)) is not None), value)


def _decoded(text: str) -> str:
    """The body that is written in base64; any other text as it is."""
    found = decode_base64(text) if _is_base64(text) else None
    return text if found is None or not is_body_start(found) else found


def decode_base64(text: str) -> str | None:
    """The text that is written in base64, unpacked if it was packed; None if it is none."""
    try:
        return _unpacked(base64.b64decode(text.replace("-", "+").replace("_", "/")))
    except ValueError:
        return None


def _is_base64(text: str) -> bool:
    return _BASE64.fullmatch(text) is not None


def _unpacked(data: bytes) -> str:
    """The text of bytes. Raises ValueError."""
    if data.startswith(b"\x1f\x8b"):
        try:
            data = zlib.decompressobj(31).decompress(data, _MOST_UNPACKED)
        except zlib.error as error:
            raise ValueError from error
    return data.decode()


def is_body_start(text: str) -> bool:
    """Whether text begins as a body does, rather than as what a model says."""
    return text.startswith(_STREAMS) or _JSON_START.match(text) is not None


def is_cut(text: str) -> bool:
    """Whether text is nothing, the start of a body in JSON, a stream without an end, or says itself that it was cut."""
    text = _decoded(text)
    if text.startswith(_STREAMS):
        from bylaw.wire.formats.base import read_events

        events = read_events(text.encode())
        bodies = [event.json for event in events if isinstance(event.json, dict)]
        return not is_finished(bodies) and not any(event.data == "[DONE]" for event in events)
    return not text.strip() or has_cut_mark(text) or (is_body_start(text) and isinstance(parsed(text), str))


def has_cut_mark(text: str) -> bool:
    """Whether text ends with a mark that something was cut, such as `… [truncated]` or `...(1,024 more characters)`."""
    return _CUT_MARK.search(text[-120:]) is not None


def is_unreadable(text: str) -> bool:
    """Whether text is a body that is not read, and not what a model said: a part of one, bytes in base64, a page."""
    if _PAGE_START.match(text) is not None or (is_body_start(text) and is_cut(text)):
        return True
    return len(text) >= _LEAST_ENCODED and _is_base64(text)
