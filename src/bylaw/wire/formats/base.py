"""The interface of every wire format, and server-sent events, which all of them stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from bylaw.wire.exchange import Incoming, json_of

Json: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[str], str]
_SYSTEM_ROLES = ("system", "developer")
_WORDS = re.compile(r"\s*\S+|\s+$")
RETRY_AFTER = "1"
"""seconds; clients wait this long before they try again"""


class ResultPlace(Struct, frozen=True, kw_only=True):
    """A tool's result inside a request, which it can read and change."""

    call_id: str
    name: str | None
    holder: dict[str, Any]
    """the part of the request that holds the result"""
    key: str
    kinds: tuple[str, ...] = ("text",)
    """the types of blocks that hold text"""
    error_key: str | None = None
    """the key that marks a failed call, in formats that have one"""

    @property
    def text(self) -> str:
        content = self.holder.get(self.key)
        if isinstance(content, str):
            return content
        return "\n".join(str(block.get("text", "")) for block in objects_in(content) if block.get("type") in self.kinds)

    def alter(self, change: Change) -> None:
        """Apply a change to the text, or to its last block."""
        edit_text(self.holder, self.key, change, self.kinds)

    def put(self, text: str, *, is_error: bool = False) -> None:
        """Replace the whole result."""
        self.holder[self.key] = text
        if is_error and self.error_key is not None:
            self.holder[self.error_key] = True


class WireFormat(Protocol):
    name: str
    path: str
    """how the path of its requests ends"""

    def matches(self, request: Json) -> bool:
        """Whether a body looks like a request of this format."""
        ...

    def collect(self, events: list[Event]) -> Json | None:
        """The reply that was streamed; None if the stream holds nothing of it."""
        ...

    def stream(self, reply: Json) -> list[bytes]:
        """The reply as events."""
        ...

    def text_in(self, event: Event) -> str:
        """The text of the answer that one event of a stream carries."""
        ...

    def with_text(self, reply: Json, change: Change, *, cut_short: bool = False) -> Json:
        """The reply with its text changed. `cut_short` also sets the reason why the answer ends."""
        ...

    def without_content(self, reply: Json) -> Json: ...

    def calls(self, reply: Json) -> dict[str, str]:
        """The calls in a reply: call id → the name of the tool."""
        ...

    def with_broken_calls(self, reply: Json, change: Change) -> Json:
        """The reply with the JSON text of its calls' arguments changed."""
        ...

    def error(self, status: int, message: str | None) -> Incoming:
        """A failure as the provider reports it."""
        ...

    def answer(self, reply: Json) -> Json:
        """The reply as an assistant's chat message, for the record."""
        ...

    def messages(self, request: Json) -> list[Any]:
        """The conversation of a request as chat messages, for the record."""
        ...

    def edit_prompt(self, request: Json, change: Change) -> bool:
        """Change the latest text of the user, in place; False if there is none."""
        ...

    def insert(self, request: Json, place: int | None, text: str) -> None:
        """Insert a message into the conversation, in place; None: before the first that is not the system's."""
        ...

    def results(self, request: Json) -> Iterator[ResultPlace]:
        """The tool results in a request."""
        ...


# Texts and messages


def words(text: str) -> list[str]:
    """A text in the pieces in which it is streamed: word by word."""
    return _WORDS.findall(text)


def first_words(text: str, count: int) -> str:
    return "".join(words(text)[:count])


def retry_headers(status: int) -> dict[str, str]:
    return {"retry-after": RETRY_AFTER} if status in (429, 503, 529) else {}


def role_of(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def objects_in(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def edit_text(holder: Json, key: str, change: Change, kinds: tuple[str, ...] = ("text",)) -> bool:
    """Change a text, or the last text block of a list of content blocks; False if there is none."""
    content = holder.get(key)
    if isinstance(content, str):
        holder[key] = change(content)
        return True
    for block in reversed(objects_in(content)):
        if block.get("type") in kinds and isinstance(block.get("text"), str):
            block["text"] = change(block["text"])
            return True
    return False


def edit_user_text(messages: list[Any], change: Change, kinds: tuple[str, ...] = ("text",)) -> bool:
    """Change the latest text of a user's message; False if there is none."""
    users = (message for message in reversed(messages) if role_of(message) == "user")
    return any(edit_text(message, "content", change, kinds) for message in users)


def insert_message(messages: list[Any], place: int | None, text: str, *, is_result: Callable[[Any], bool]) -> None:
    """Insert a message. A call and its results stay together, because no provider accepts anything between them."""
    if place is None:
        place = next((at for at, one in enumerate(messages) if role_of(one) not in _SYSTEM_ROLES), len(messages))
    at = max(0, min(place, len(messages)))
    while 0 < at < len(messages) and is_result(messages[at]):
        at -= 1
    follows_user = any(role_of(message) == "user" for message in messages[:at])
    messages.insert(at, {"role": "assistant" if follows_user else "user", "content": text})


# Server-sent events

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE_END = re.compile(r"\r\n|\n|\r")
"""the only ends of lines there; `str.splitlines` would also split at U+2028, which JSON may contain as it is"""


class Event(Struct, frozen=True):
    name: str | None
    data: str
    end: int
    """the number of bytes of the body up to the end of this event"""

    @property
    def json(self) -> Any:
        """The data as JSON; None if it is not JSON."""
        value = json_of(self.data)
        return None if value is msgspec.UNSET else value


def read_events(body: bytes) -> list[Event]:
    """The complete events of a body; one that is cut off at the end is left out."""
    events: list[Event] = []
    start = 0
    for blank in _BLANK_LINE.finditer(body):
        name, data = None, []
        for line in _LINE_END.split(body[start : blank.start()].decode("utf-8", "replace").removeprefix("\ufeff")):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
        start = blank.end()
        if data:
            events.append(Event(name, "\n".join(data), start))
    return events


def write_event(data: Any, name: str | None = None) -> bytes:
    """One event. Text is written as it is, anything else as JSON."""
    text = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    lines = b"".join(b"data: " + line + b"\n" for line in text.splitlines() or [b""])
    return (f"event: {name}\n".encode() if name else b"") + lines + b"\n"
