"""Saved runs of OpenAI's Agents SDK, in Python or JavaScript: a `RunState`, the items of a run, or its raw responses.

A state holds each response of the model, which makes a turn, and all items of the run, among them the results of calls.
Raw responses hold no results. Items do not mark where a response ends: what the model gave between two results is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.traces.formats.bodies import answer_of_items
from bylaw.traces.formats.gathered import GatheringReader, Part
from bylaw.traces.formats.record import MalformedRecord, Record, list_field, object_field, text_field
from bylaw.traces.formats.responses_items import RESULTS, call_id_of, inline_result, kind_of, message_of, messages_of

_RESPONSES, _ITEMS = ("model_responses", "modelResponses"), ("generated_items", "generatedItems")
_ALL_ITEMS = ("session_items", "sessionItems")
"""also those that a filter hid from the model"""
_INPUTS, _RAW = ("original_input", "originalInput"), ("raw_item", "rawItem")
_IDS, _STEPS = ("response_id", "responseId"), ("current_step", "currentStep")


def is_saved_run(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and (_is_response(value[0]) or _is_item(value[0]))
    return _is_state(value) or _is_response(value) or _is_item(value)


def _is_state(value: Any) -> bool:
    return isinstance(value, dict) and "$schemaVersion" in value and any(key in value for key in _RESPONSES)


def _is_response(value: Any) -> bool:
    if not isinstance(value, dict) or "object" in value or not isinstance(value.get("output"), list):
        return False
    return isinstance(value.get("usage"), dict) and any(key in value for key in _IDS)


def _is_item(value: Any) -> bool:
    kind = text_field(value, "type") if isinstance(value, dict) else None
    return kind is not None and kind.endswith("_item") and any(isinstance(value.get(key), dict) for key in _RAW)


class RunStateReader(GatheringReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if _is_state(value):
            try:
                self.read_list(record, list(_steps(value)), (), None)
            except MalformedRecord as error:
                record.malformed(error)
            step: dict[str, Any] = next((value[key] for key in _STEPS if isinstance(value.get(key), dict)), {})
            self.complete = step.get("type") != "next_step_interruption"  # it waits for an approval
        elif isinstance(value, list):
            self.read_list(record, value, (), None)
        else:
            self.read_open(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[Part]:
        if "message" in event:
            yield Part(event["message"], agent=event["agent"])
        elif _is_response(event):
            yield Part(_answer(event))
            yield from (Part(message) for message in _inline_results(event))
        elif _is_item(event):
            raw = _raw(event)
            if not event["type"].startswith("tool_approval"):  # repeats its call
                message = message_of(raw)
                is_answer = message["role"] == "assistant"
                yield Part(message, key="run" if is_answer else None, agent=_agent(event) if is_answer else None)
        else:
            raise MalformedRecord("this is neither a response nor an item of a run")


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of a state in their order, each with its agent."""
    items = [*_listed(state, _ITEMS), *_listed(state, _ALL_ITEMS)]
    agents = {_identity(_raw(item)): _agent(item) for item in reversed(items) if _is_item(item)}
    results = {
        call_id_of(_raw(item)): _raw(item)
        for item in reversed(items)
        if _is_item(item) and text_field(_raw(item), "type") in RESULTS
    }
    given = next((state[key] for key in _INPUTS if key in state), None)
    yield from ({"message": message, "agent": None} for message in messages_of(given) or ())
    for response in _listed(state, _RESPONSES):
        if not _is_response(response):
            raise MalformedRecord("a response of this run has no list `output`")
        output = [item for item in response["output"] if isinstance(item, dict)]
        agent = next((agents[key] for item in output if (key := _identity(item)) in agents), None)
        yield {"message": _answer(response), "agent": agent}
        yield from ({"message": message, "agent": agent} for message in _inline_results(response))
        for item in output:
            result = results.pop(call_id_of(item), None)
            if result is not None:
                yield {"message": message_of(result), "agent": agent}
    yield from ({"message": message_of(result), "agent": None} for result in results.values())


def _answer(response: dict[str, Any]) -> dict[str, Any]:
    usage = {key: value for key, value in object_field(response, "usage").items() if not isinstance(value, list)}
    return {**answer_of_items(response["output"]), "usage": usage or None}


def _inline_results(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What calls returned that the provider ran itself."""
    for item in response["output"]:
        if isinstance(item, dict) and (result := inline_result(item, kind_of(item))) is not None:
            yield {"role": "tool", "tool_call_id": result.call_id, "content": result.content}


def _listed(state: dict[str, Any], keys: tuple[str, ...]) -> list[Any]:
    return next((found for key in keys if (found := list_field(state, key))), [])


def _raw(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(item[key] for key in _RAW if isinstance(item.get(key), dict))
    return found


def _agent(item: dict[str, Any]) -> str | None:
    return text_field(object_field(item, "agent"), "name")


def _identity(raw: dict[str, Any]) -> tuple[str | None, str | None]:
    return text_field(raw, "id"), call_id_of(raw)
