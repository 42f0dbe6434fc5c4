"""One of inspect_ai's samples, with what a log holds only once put back in its places.

Long texts stand in `attachments` and are named `attachment://…` elsewhere. Newer logs hold each message once, in
`events_data`, and name ranges of them in `input_refs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bylaw.model.source import Locator
from bylaw.traces.formats.inspect_ai.attachments import Attachments
from bylaw.traces.formats.spans.asked import Asked
from bylaw.traces.formats.spans.messages import chat_messages

_MOST_REFERENCES = 1_000_000
"""messages that one request may name: ranges are cheap to write"""


class Sample:
    def __init__(self, value: dict[str, Any], source: Locator, warn: Callable[[], None]) -> None:
        """`warn` is called when it names more of its attachments than are put back."""
        self.value = value
        self.source = source
        data = value.get("events_data")
        texts = value.get("attachments")
        self._told, self._asked = Attachments(texts, warn), Attachments(texts, warn, repeated=True)
        pool = data.get("messages") if isinstance(data, dict) else value.get("message_pool")
        pooled = enumerate(pool) if isinstance(pool, list) else pool.items() if isinstance(pool, dict) else ()
        self._pool: dict[int, Any] = dict(pooled)
        """by their index; one that could not be read is not there"""
        self._end = max(self._pool, default=-1) + 1
        self._pooled: dict[int, list[dict[str, Any]]] = {}

    @property
    def name(self) -> str:
        return f"sample {self.value['id']} epoch {self.value.get('epoch', 1)}"

    @property
    def events(self) -> list[Any]:
        events = self.value.get("events")
        return events if isinstance(events, list) else []

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """Its messages at the end, for a log without events."""
        refs = self.value.get("message_refs")
        return self._named(refs) if isinstance(refs, list) else self.messages(self.value.get("messages")) or []

    def messages(self, value: Any) -> list[dict[str, Any]] | None:
        return _messages(value, self._told)

    def asked(self, event: dict[str, Any]) -> Asked | None:
        """The input of a model, whether it stands there or in the pool."""
        given, refs = event.get("input"), event.get("input_refs")
        if given:
            return Asked(given, each=self._repeated) if isinstance(given, list) else Asked(given, read=self._input)
        return Asked(refs, read=self._named if isinstance(refs, list) else self._input) if refs else None

    def resolved(self, value: Any) -> Any:
        return self._told.put_back(value)

    def _repeated(self, message: dict[str, Any]) -> dict[str, Any]:
        return _plain(self._asked.put_back(message))

    def _input(self, value: Any) -> list[dict[str, Any]] | None:
        return _messages(value, self._asked)

    def _named(self, refs: list[Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for index in self._indices(refs):
            if index not in self._pooled:
                self._pooled[index] = self._input([self._pool[index]]) or []
            found += self._pooled[index]
        return found

    def _indices(self, refs: list[Any]) -> Iterator[int]:
        left = _MOST_REFERENCES
        for ref in refs:
            start, end = ref if isinstance(ref, list) and len(ref) == 2 else (ref, None)
            if type(start) is not int or start < 0:
                continue
            end = end if type(end) is int else start + 1
            named = range(start, min(end, self._end, start + left))
            left -= len(named)
            yield from (index for index in named if index in self._pool)


def _messages(value: Any, attachments: Attachments) -> list[dict[str, Any]] | None:
    found = chat_messages(attachments.put_back(value)) if isinstance(value, (list, str)) else None
    return None if found is None else [_plain(message) for message in found]


def error_text(error: Any) -> str | None:
    if isinstance(error, dict):
        return str(error.get("message") or error.get("type") or "error")
    return str(error) if error else None


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """inspect_ai's own words in a message, as others say them."""
    content, error = message.get("content"), message.get("error")
    changed: dict[str, Any] = {}
    if isinstance(content, list):
        changed["content"] = [_thought(block) for block in content]
    if message.get("role") == "tool":
        changed["name"] = message.get("function")
        if error is not None:
            changed["is_error"] = True
            changed["content"] = changed.get("content", content) or error_text(error)
    return {**message, **changed} if changed else message


def _thought(block: Any) -> Any:
    if isinstance(block, dict) and block.get("type") == "reasoning":
        return {**block, "type": "thinking", "text": block.get("reasoning")}
    return block
