"""The input of a model as a recorder wrote it, converted to messages only when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from bylaw.model.events import Deferred
from bylaw.traces.assembly.content import Result
from bylaw.traces.formats.chat_message import read_assistant, results_in
from bylaw.traces.formats.messages import chat_message, listed
from bylaw.traces.formats.record import MalformedRecord
from bylaw.traces.formats.spans.attributes import Element
from bylaw.traces.records.jsontext import REFUSED, decode_whole

_pieces = msgspec.json.Decoder(list[Raw]).decode


def pieces(value: Any) -> list[Any] | None:
    """The same, but a list that is still JSON is only divided, for callers that look at few messages."""
    if type(value) is Raw and bytes(value)[:1] != b"[":
        value = decode_whole(value)  # text may hold JSON
    found = _divided(value)
    if found is not None and len(found) == 1 and bytes(found[0])[:1] == b"[":
        found = _divided(found[0])
    return listed(value) if found is None else found


def _divided(value: Any) -> list[Raw] | None:
    if type(value) is not Raw and (type(value) is not str or value.lstrip()[:1] != "["):
        return None
    try:
        return _pieces(value)
    except REFUSED:
        return None


class RecordedInput:
    """The input of a model as it was recorded, converted to messages only when it is looked at.

    Recorders repeat the whole conversation with every request, so nearly all of it is never looked at. Results of calls
    stand near the end, so they are searched from the end.
    """

    __slots__ = ("_each", "_read", "_recorded", "_system")

    def __init__(
        self,
        recorded: Any,
        *,
        read: Callable[[Any], Any] | None = None,
        system: list[dict[str, Any]] | None = None,
        each: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """`recorded` may still be JSON. `read` extracts the messages, `system` precedes them, `each` converts one."""
        self._recorded = recorded
        self._read = read
        self._system = system
        self._each = each

    def deferred(self) -> Deferred:
        return Deferred(RecordedInput.messages, self)

    def messages(self) -> list[dict[str, Any]] | None:
        found = [message for one in listed(self._read_once()) or () for message in self._converted(one)]
        return [*(self._system or ()), *found] or None

    def results(self, wanted: set[str], known: Container[str]) -> tuple[list[Result], list[Result]]:
        """The latest result of each of these calls; if one lacks, also those since the last answer that name no call.

        `known`: the ids of all calls. An answer may be recorded without ids, or with others than its results have: what
        the input itself says about the call of such a result is returned with it.
        """
        by_id: dict[str, Result] = {}
        unnamed: list[Result] = []
        answered = False
        for one in reversed(pieces(self._read_once()) or ()):
            for message in reversed(self._converted(one)):
                if message.get("role") == "assistant":
                    answered = True
                    unnamed = [_with_call(result, message) for result in unnamed]
                    if not wanted.isdisjoint(_ids(message)):
                        return list(by_id.values())[::-1], unnamed[::-1]  # results follow their call
                    continue
                for result in reversed(results_in(message)):
                    if result.call_id in wanted:
                        by_id.setdefault(result.call_id or "", result)
                    elif not answered and (result.call_id is None or result.call_id not in known):
                        unnamed.append(result)
            if len(by_id) == len(wanted):
                return list(by_id.values())[::-1], []  # no call is left that a result without an id could answer
        return list(by_id.values())[::-1], unnamed[::-1]

    def _read_once(self) -> Any:
        if self._read is not None:
            self._recorded, self._read = self._read(self._recorded), None
        return self._recorded

    def _converted(self, one: Any) -> list[dict[str, Any]]:
        found = chat_message(one.nested() if type(one) is Element else one)
        return found if self._each is None else [self._each(message) for message in found]


def _with_call(result: Result, answer: dict[str, Any]) -> Result:
    """The result with the name and the arguments of its call, if the answer holds that."""
    if result.call_id is None or result.arguments is not None or result.call_id not in _ids(answer):
        return result
    try:
        content = read_assistant(answer)
    except MalformedRecord:
        return result  # the answer itself was reported when it was read
    for use, (arguments, raw) in zip(content.uses, content.arguments, strict=True):
        if use.get("id") == result.call_id:
            return replace(result, name=str(use["name"]), arguments=raw if arguments is None else arguments)
    return result


def _ids(message: dict[str, Any]) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    for part in (*(content if isinstance(content, list) else ()), *(calls if isinstance(calls, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("id"), str):
            yield part["id"]
