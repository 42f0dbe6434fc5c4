"""What a model was asked, in whatever shape it was recorded, and turned into messages only when somebody looks.

Recorders repeat the whole conversation with every request, so nearly all of it is never looked at. What a call returned
stands near the end: that much is read from behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bylaw.model.events import Deferred
from bylaw.traces.formats.chat.message import Result, results_in
from bylaw.traces.formats.spans.attributes import Element
from bylaw.traces.formats.spans.messages import chat_message, listed, pieces


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
        """`recorded` may still be JSON, `read` gets at it, `system` goes before it, `each` is done to each message."""
        self._recorded = recorded
        self._read = read
        self._system = system
        self._each = each

    def deferred(self) -> Deferred:
        return Deferred(Asked.messages, self)

    def messages(self) -> list[dict[str, Any]] | None:
        found = [message for one in listed(self._read_once()) or () for message in self._converted(one)]
        return [*(self._system or ()), *found] or None

    def results(self, wanted: set[str]) -> tuple[list[Result], list[Result]]:
        """The latest result of each of these calls; where one lacks, also those without an id since the last answer."""
        by_id: dict[str, Result] = {}
        nameless: list[Result] = []
        answered = False
        for one in reversed(pieces(self._read_once()) or ()):
            for message in reversed(self._converted(one)):
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
            if len(by_id) == len(wanted):
                return list(by_id.values())[::-1], []  # no call is left that one without an id could be of
        return list(by_id.values())[::-1], nameless[::-1]

    def _read_once(self) -> Any:
        if self._read is not None:
            self._recorded, self._read = self._read(self._recorded), None
        return self._recorded

    def _converted(self, one: Any) -> list[dict[str, Any]]:
        found = chat_message(one.nested() if type(one) is Element else one)
        return found if self._each is None else [self._each(message) for message in found]


def _ids(message: dict[str, Any]) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    for part in (*(content if isinstance(content, list) else ()), *(calls if isinstance(calls, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("id"), str):
            yield part["id"]
