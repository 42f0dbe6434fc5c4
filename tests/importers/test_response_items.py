"""Items of OpenAI's Responses API, in each format that holds them: known ones are read, and no other one is green."""

from __future__ import annotations

import json
import time
import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import bylaw
from bylaw.errors import InputError
from bylaw.model.events import Trace
from bylaw.record.turns import ModelCall, lines_of
from bylaw.traces import load_trace
from bylaw.wire.formats.openai import OpenAiResponses
from tests.importers.support import calls, export, lines, read, responses, results, span, story
from tests.importers.test_unread import codes

RULES: list[dict[str, Any]] = [{"id": "wipe", "kind": "no_call", "scope": "session", "params": {"tool": "wipe"}}]
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}
SAYS = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
TIME = "2026-01-01T00:00:00Z"


def response(*items: Any, id: str = "r1", **more: Any) -> dict[str, Any]:
    return {"id": id, "object": "response", "model": "m", "status": "completed", "output": items, **more}


def as_stream(*items: Any) -> str:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response()}]
    events += [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)]
    events += [{"type": "response.completed", "response": response(*items)}]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def as_codex(*items: Any) -> bytes:
    meta = {"timestamp": TIME, "type": "session_meta", "payload": {"id": "s", "cwd": "/"}}
    return lines(meta, *({"timestamp": TIME, "type": "response_item", "payload": item} for item in (USER, *items)))


def as_langfuse(output: Any) -> bytes:
    row = {"id": "o", "traceId": "t", "type": "GENERATION", "name": "g", "startTime": TIME, "input": "q"}
    return lines({**row, "output": output})


def as_langsmith(outputs: Any) -> bytes:
    run = {"id": "a", "trace_id": "a", "run_type": "llm", "name": "x", "start_time": "2026-01-01T00:00:00"}
    return lines({**run, "inputs": {"input": "q"}, "outputs": outputs})


def as_span(**data: Any) -> bytes:
    part = {"object": "trace.span", "id": "s", "trace_id": "t", "started_at": TIME, "ended_at": TIME}
    return lines({**part, "span_data": {"type": "response", "response_id": "r1", **data}})


def as_recording(*items: Any) -> bytes:
    asked, reply = {"model": "m", "input": [USER]}, json.loads(json.dumps(response(*items)))
    now = time.time()
    call = ModelCall(OpenAiResponses(), asked, reply, now, now, 1.0)
    return b'{"bylaw": "trace/1"}\n' + b"".join(msgspec.json.encode(line) + b"\n" for line in lines_of(call, set()))


FORMS: dict[str, Callable[..., Any]] = {
    "response": lambda *items: lines(response(*items)),
    "wrapped response": lambda *items: lines({"response": response(*items), "status": 200}),
    "list": lambda *items: json.dumps([USER, *items]).encode(),
    "lines": lambda *items: lines(USER, *items),
    "pair": lambda *items: lines({"request": {"model": "m", "input": "q"}, "response": response(*items)}),
    "pair with a stream": lambda *items: lines({"request": {"input": "q"}, "response": as_stream(*items)}),
    "langfuse": lambda *items: as_langfuse(response(*items)),
    "langfuse items": lambda *items: as_langfuse(items),
    "langsmith": lambda *items: as_langsmith(response(*items)),
    "langsmith items": lambda *items: as_langsmith({"output": items}),
    "raw responses": lambda *items: json.dumps([{"output": items, "usage": {}, "response_id": "r1"}]).encode(),
    "run items": lambda *items: lines(
        *({"type": "tool_call_item", "agent": {"name": "a"}, "raw_item": item} for item in items)
    ),
    "agents span": lambda *items: as_span(response=response(*items)),
    "agents span output": lambda *items: as_span(output=items),
    "otlp": lambda *items: lines(
        export(span("s", 0, 1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(items)}))
    ),
    "openinference": lambda *items: lines(
        export(span("s", 0, 1, {"openinference.span.kind": "LLM", "output.value": json.dumps(items)}))
    ),
    "codex": as_codex,
    "recording": as_recording,
}
EVERY_FORM = pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
LOUD = frozenset(("list", "lines", "response", "wrapped response", "codex"))
"""formats in which a known item without what it needs is an error"""
UNREAD: list[dict[str, Any]] = [
    {"type": "future_call", "id": "x", "call_id": "c9", "name": "wipe", "arguments": "{}"},
    {"type": "wipe_call", "id": "x", "status": "completed", "action": {"x": 1}},
    {"type": "remote_thing", "id": "x", "call_id": "c9", "payload": {"tool": "wipe"}},
]
NAMELESS: list[dict[str, Any]] = [
    {"type": "function_call", "id": "x", "call_id": "c9", "arguments": "{}"},
    {"type": "custom_tool_call", "id": "x", "call_id": "c9", "input": "x"},
    {"type": "mcp_call", "id": "x", "arguments": "{}"},
]


def outcome(trace: Trace) -> str:
    return bylaw.check(trace, bylaw.load_rules(RULES)).worst("wipe").value


def orders(item: Any) -> list[list[Any]]:
    return [[item, SAYS], [SAYS, item], [item]]


@EVERY_FORM
def test_an_item_of_an_unknown_type_is_unread(write: Callable[..., Any]) -> None:
    for item in UNREAD:
        for items in orders(item):
            if write in (FORMS["list"], FORMS["lines"]) and len(items) == 1:
                continue  # nothing says that this is a list of items: the file is refused
            trace = load_trace(write(*items))
            assert ("unread-content" in codes(trace), outcome(trace)) == (True, "inconclusive"), items


@EVERY_FORM
def test_a_call_without_a_name_is_unread_or_an_error(write: Callable[..., Any]) -> None:
    is_loud = any(write is FORMS[name] for name in LOUD)
    for items in (items for item in NAMELESS for items in orders(item)):
        if is_loud:
            with pytest.raises(InputError, match="has no `name`"):
                load_trace(write(*items))
            continue
        trace = load_trace(write(*items))
        assert ("unread-content" in codes(trace), outcome(trace)) == (True, "inconclusive"), items


@EVERY_FORM
def test_a_call_in_the_words_of_another_api_is_a_call(write: Callable[..., Any]) -> None:
    for call in (
        {"type": "tool_call", "id": "c9", "name": "wipe", "arguments": "{}"},
        {"type": "tool_use", "id": "c9", "name": "wipe", "input": {}},
    ):
        for items in orders(call)[:2]:
            trace = load_trace(write(*items))
            assert [(one.name, one.call_id, one.arguments) for one in calls(trace)] == [("wipe", "c9", {})]
            assert (codes(trace), outcome(trace)) == ([], "violated")


@EVERY_FORM
def test_a_program_of_the_model_is_a_call(write: Callable[..., Any]) -> None:
    program = {"type": "program", "id": "p", "call_id": "c9", "code": "await wipe()", "fingerprint": "f"}
    for items in orders(program):
        trace = load_trace(write(*items))
        assert [(one.name, one.call_id, one.raw_arguments) for one in calls(trace)] == [
            ("programmatic_tool_calling", "c9", "await wipe()")
        ]
        assert codes(trace) == []


@EVERY_FORM
def test_items_that_are_no_part_of_an_answer_leave_it_readable(write: Callable[..., Any]) -> None:
    marks: list[dict[str, Any]] = [
        {"type": "additional_tools", "id": "x", "role": "developer", "tools": []},
        {"type": "mcp_list_tools", "id": "x", "server_label": "shop", "tools": []},
        {"type": "compaction", "id": "x", "encrypted_content": "s"},
        {"type": "configuration_update", "id": "x"},
    ]
    for mark in marks:
        for items in orders(mark)[:2]:
            trace = load_trace(write(*items))
            assert (codes(trace), outcome(trace)) == ([], "ok"), items
            assert [one.text for one in responses(trace)] == ["ok"]


def item_types() -> dict[str, Any]:
    """The types of items that the installed SDK knows, each with its class."""
    outputs = pytest.importorskip("openai.types.responses.response_output_item").ResponseOutputItem
    inputs = pytest.importorskip("openai.types.responses.response_input_item").ResponseInputItem
    found: dict[str, Any] = {}

    def add(union: Any) -> None:
        for one in typing.get_args(union):
            if not hasattr(one, "model_fields"):
                add(one)
            elif "type" in one.model_fields:
                annotation = one.model_fields["type"].annotation
                kinds = [kind for kind in (annotation, *typing.get_args(annotation)) if typing.get_args(kind)]
                for kind in kinds:
                    for name in typing.get_args(kind):
                        if isinstance(name, str):
                            found.setdefault(name, one)

    add(outputs)
    add(inputs)
    return found


def least(kind: str, model: Any) -> dict[str, Any]:
    """An item with as little as its class requires."""
    item: dict[str, Any] = {"type": kind}
    for name, field in model.model_fields.items():
        if name == "type" or not field.is_required():
            continue
        args = typing.get_args(field.annotation)
        words = [one for one in args if isinstance(one, str)]
        if field.annotation is str:
            item[name] = "{}" if name == "arguments" else "c1"
        elif words:
            item[name] = words[-1]
        else:
            item[name] = [] if typing.get_origin(field.annotation) is list else None if type(None) in args else {}
    return item


def test_every_item_that_the_sdk_knows_is_read() -> None:
    kinds = item_types()
    assert {"function_call", "program", "program_output", "tool_search_output", "compaction_trigger"} <= kinds.keys()
    for kind, model in kinds.items():
        if kind == "message":
            continue
        item = least(kind, model)
        for trace in (read(USER, item, SAYS), read(response(item, SAYS)), load_trace([USER, item, SAYS])):
            assert trace.format == "responses", kind
            assert set(codes(trace)) <= {"result-without-call"}, kind
            if kind.endswith("_call") or kind == "program":
                assert len(calls(trace)) == 1, kind
            if kind.endswith("_output"):
                assert len(results(trace)) == 1, kind


def test_results_of_programs_and_searches_for_tools() -> None:
    program = {"type": "program", "id": "p", "call_id": "c1", "code": "await f()", "fingerprint": "f"}
    given = {"type": "program_output", "id": "o", "call_id": "c1", "result": "2", "status": "completed"}
    search = {"type": "tool_search_call", "id": "t", "call_id": None, "arguments": {"q": 1}, "execution": "server"}
    found = {"type": "tool_search_output", "id": "u", "call_id": None, "execution": "server", "tools": [{"name": "f"}]}
    for trace in (read(USER, program, given, search, found, SAYS), read(response(program, given, search, found, SAYS))):
        assert [line.partition(" ")[2] for line in story(trace) if " tool_" in line] == [
            "tool_call programmatic_tool_calling null",
            'tool_result programmatic_tool_calling "2"',
            'tool_call tool_search {"q": 1}',
            'tool_result tool_search [{"name": "f"}]',
        ]
        assert codes(trace) == []


def test_a_message_without_a_role_in_an_output_is_the_models() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "secret"}]}
    assert [one.text for one in responses(read(response(message)))] == ["secret"]
