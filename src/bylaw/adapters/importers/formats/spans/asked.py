"""What a model was asked, in whatever shape it was recorded, and turned into messages only when somebody looks.

Recorders repeat the whole conversation with every request, so nearly all of it is never looked at. What a call returned
stands near the end: that much is read from behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bylaw.adapters.importers.formats.chat.message import Result, results_in
from bylaw.adapters.importers.formats.spans.messages import chat_message, listed
from bylaw.model.events import Deferred


class Asked:
    __slots__ = ("_each", "_read", "_recorded", "_system")

    def __init__(
        self,
        recorded: Any,
        *,
        read: Callable[[Any], Any] | None = None,
        system: list[dict[str, Any]] | None = None,
        each: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """`read` gets at what is recorded; `system` goes before it; `each` is done to each message."""
        self._recorded = recorded
        self._read = read
        self._system = system
        self._each = each

    def deferred(self) -> Deferred:
        return Deferred(Asked.messages, self)

    def messages(self) -> list[dict[str, Any]] | None:
        found = [message for one in self._listed() or () for message in self._converted(one)]
        return [*(self._system or ()), *found] or None

    def results(self, wanted: set[str]) -> tuple[list[Result], list[Result]]:
        """The latest result of each of these calls, and those without an id since the last answer, in their order."""
        by_id: dict[str, Result] = {}
        nameless: list[Result] = []
        answered = False
        for one in reversed(self._listed() or ()):
            for message in reversed(list(self._converted(one))):
                if message.get("role") == "assistant":
                    answered = True
                    if not wanted.isdisjoint(_ids(message)):
                        return list(by_id.values())[::-1], nameless[::-1]  # what it returned stands behind a call
                    continue
                for result in results_in(message):
                    if result.call_id is None:
                        nameless += [] if answered else [result]
                    elif result.call_id in wanted:
                        by_id.setdefault(result.call_id, result)
            if answered and len(by_id) == len(wanted):
                break
        return list(by_id.values())[::-1], nameless[::-1]

    def _listed(self) -> list[Any] | None:
        if self._read is not None:
            self._recorded, self._read = self._read(self._recorded), None
        if not isinstance(self._recorded, list):
            self._recorded = listed(self._recorded)
        return listed(self._recorded)

    def _converted(self, one: Any) -> Iterator[dict[str, Any]]:
        return chat_message(one) if self._each is None else map(self._each, chat_message(one))


def _ids(message: dict[str, Any]) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    for part in (*(content if isinstance(content, list) else ()), *(calls if isinstance(calls, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("id"), str):
            yield part["id"]
