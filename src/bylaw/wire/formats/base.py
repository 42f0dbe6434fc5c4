"""What every wire format can do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from bylaw.wire.exchange import Incoming
from bylaw.wire.formats.sse import Event

Json: TypeAlias = dict[str, Any]
_PIECES = re.compile(r"\s*\S+|\s+$")
RETRY_AFTER = "1"
"""seconds; clients wait as long as they are told before they try again"""


class ResultPlace(Struct, frozen=True):
    """A tool's result inside a request."""

    call_id: str
    name: str | None
    alter: Callable[[Callable[[str], str]], None]
    """put a change of its text into the request"""


class Wire(Protocol):
    name: str
    path: str
    """how the path of its requests ends"""

    def asks(self, request: Json) -> bool:
        """Whether a body looks like a request of this format."""
        ...

    def collected(self, events: list[Event]) -> Json | None:
        """The reply that was streamed; None where nothing of it came."""
        ...

    def streamed(self, reply: Json) -> list[bytes]:
        """The reply as events."""
        ...

    def texts_of(self, event: Event) -> str:
        """The text of the answer that one event of a stream carries."""
        ...

    def with_text(self, reply: Json, change: Callable[[str], str], *, cut_short: bool = False) -> Json:
        """The reply with its text changed; `cut_short` also says so where the format says why an answer ends."""
        ...

    def without_content(self, reply: Json) -> Json: ...

    def has_calls(self, reply: Json) -> bool: ...

    def with_broken_calls(self, reply: Json, change: Callable[[str], str]) -> Json:
        """The reply with the JSON text of its calls' arguments changed."""
        ...

    def error(self, status: int, message: str | None) -> Incoming:
        """The provider's own failure."""
        ...

    def answer(self, reply: Json) -> Json:
        """The reply as an assistant's chat message, for the record."""
        ...

    def messages(self, request: Json) -> list[Any]:
        """The conversation of a request as chat messages, for the record."""
        ...

    def edit_prompt(self, request: Json, change: Callable[[str], str]) -> bool:
        """Change the latest text of the user's, in place; False where there is none."""
        ...

    def insert(self, request: Json, place: int | None, text: str) -> None:
        """Put a message into the conversation, in place; None: before the first that is not the system's."""
        ...

    def results(self, request: Json) -> Iterator[ResultPlace]:
        """The results of tools that the request hands to the model."""
        ...


def pieces(text: str) -> list[str]:
    """A text as a stream tells it: word by word."""
    return _PIECES.findall(text)


def first_words(text: str, count: int) -> str:
    return "".join(pieces(text)[:count])


def json_reply(status: int, body: Any, headers: dict[str, str] | None = None) -> Incoming:
    return Incoming(status, {"content-type": "application/json", **(headers or {})}, msgspec.json.encode(body))


def retry_headers(status: int) -> dict[str, str]:
    return {"retry-after": RETRY_AFTER} if status in (429, 503, 529) else {}


def edit_text(holder: Json, key: str, change: Callable[[str], str], kinds: tuple[str, ...]) -> bool:
    """Change a text, or the last text block of a list of content blocks; False where there is none."""
    content = holder.get(key)
    if isinstance(content, str):
        holder[key] = change(content)
        return True
    for block in reversed(content) if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in kinds and isinstance(block.get("text"), str):
            block["text"] = change(block["text"])
            return True
    return False


def place_for(messages: list[Any], place: int | None, *, is_system: Callable[[Any], bool]) -> int:
    """Where a message goes, kept inside the conversation."""
    if place is not None:
        return max(0, min(place, len(messages)))
    return next((at for at, message in enumerate(messages) if not is_system(message)), len(messages))
