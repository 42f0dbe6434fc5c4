"""Results that only the next request of a conversation shows, because it repeats the messages so far.

A result is read once, however many requests repeat it, and none is left out. Its id may not be that of the recorded
call: some clients and proxies write ids of their own. Then the repeated answer says which call has it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bylaw.model.events import Locator
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import Result
from bylaw.traces.assembly.session_buffer import MOST_CALLS, KnownCall, SessionBuffer
from bylaw.traces.formats.bodies import has_calls
from bylaw.traces.formats.chat_message import ASSISTANT, read_assistant, results_in, time_of
from bylaw.traces.formats.messages import chat_message
from bylaw.traces.formats.record import MalformedRecord


def add_repeated_results(
    assembler: Assembler, buffer: SessionBuffer, messages: list[dict[str, Any]], source: Locator | None, before: int = 0
) -> None:
    """Add the results among the messages of the next request of this session that were not read yet.

    `before`: how many messages stand before these.
    """
    for message, result in _new_results(buffer, messages, before):
        event = result.event(buffer.origin, time_of(message), source)
        assembler.result(buffer, event, result.arguments, is_repeated=True)


def add_results_of_request(
    assembler: Assembler, buffer: SessionBuffer, recorded: Sequence[Any], source: Locator | None
) -> None:
    """The same for messages in any shape, decoded or not. They are looked at from the end, as far as is needed."""
    from_the_end: list[list[dict[str, Any]]] = []
    start = len(recorded)
    while start > 0:
        start -= 1
        new = chat_message(recorded[start])
        from_the_end.append(new)
        if new and new[-1].get("role") == ASSISTANT and (not buffer.is_waiting or _is_known(buffer, new, len(new))):
            break
    messages = [message for new in reversed(from_the_end) for message in new]
    add_repeated_results(assembler, buffer, messages, source, start)


def _new_results(
    buffer: SessionBuffer, messages: list[dict[str, Any]], before: int
) -> Iterator[tuple[dict[str, Any], Result]]:
    end = _after_answer(messages, len(messages))
    yield from _of_waiting_calls(buffer, messages, end)
    if buffer.turn is None and end and has_calls(messages[end - 1]):
        return  # the recording began amid a conversation
    issued: dict[str, tuple[str, Any]] | None = None
    fresh: set[int] = set()
    for at in range(end, len(messages)):
        for result in results_in(messages[at]):
            known = _certain(buffer, result)
            if known is not None:
                if not known.answered or id(known) in fresh:
                    fresh.add(id(known))
                    yield messages[at], result
            elif _is_new(buffer, before + at, result):
                issued = _issued(messages, end) if issued is None else issued
                name, arguments = issued.get(result.call_id or "", (None, None))
                if result.arguments is None and name is not None:
                    result = replace(result, name=result.name or name, arguments=arguments)
                yield messages[at], result


def _of_waiting_calls(
    buffer: SessionBuffer, messages: list[dict[str, Any]], end: int
) -> Iterator[tuple[dict[str, Any], Result]]:
    """Results before the latest answer, if the answers since the recorded one were left out of the recording."""
    is_waiting = buffer.is_waiting
    while is_waiting and end > 0 and not _is_known(buffer, messages, end):
        start = _after_answer(messages, end - 1)
        found = [(message, one) for message in messages[start : end - 1] for one in results_in(message)]
        known = [_certain(buffer, result) for _, result in found]
        for pair, call in zip(found, known, strict=True):
            if call is not None and not call.answered:
                yield pair
        if not found or None not in known:
            return
        end = start


def _is_known(buffer: SessionBuffer, messages: list[dict[str, Any]], end: int) -> bool:
    """Whether the answer before `end` issues calls that are recorded."""
    return any(call_id in buffer.calls for call_id in _issued(messages, end))


def _after_answer(messages: list[dict[str, Any]], end: int) -> int:
    """Where the messages after the latest answer before `end` begin."""
    return next((at + 1 for at in range(end - 1, -1, -1) if messages[at].get("role") == ASSISTANT), 0)


def _certain(buffer: SessionBuffer, result: Result) -> KnownCall | None:
    """The call that has the id of a result, and shares it with no other."""
    call_id = result.call_id
    return None if call_id is None or call_id in buffer.shared else buffer.calls.get(call_id)


def _is_new(buffer: SessionBuffer, at: int, result: Result) -> bool:
    """Whether no earlier request showed this result in the same place."""
    key = hash((at, result.call_id, result.name, msgspec.json.encode(result.content)))
    is_new = key not in buffer.repeated
    buffer.repeated[key] = None
    if len(buffer.repeated) > MOST_CALLS:
        del buffer.repeated[next(iter(buffer.repeated))]
    return is_new


def _issued(messages: list[dict[str, Any]], end: int) -> dict[str, tuple[str, Any]]:
    """Name and arguments of the calls in the answer before `end`, by the ids that they have there, unless shared."""
    try:
        answer = read_assistant(messages[end - 1]) if end else None
    except MalformedRecord:
        return {}
    found: dict[str, tuple[str, Any]] = {}
    uses = [] if answer is None else [(str(use.get("id") or ""), use) for use in answer.uses]
    ids = [call_id for call_id, _ in uses]
    for number, (call_id, use) in enumerate(uses):
        if call_id and ids.count(call_id) == 1 and answer is not None:
            arguments, raw = answer.arguments[number]
            found[call_id] = (use["name"], raw if arguments is None else arguments)
    return found
