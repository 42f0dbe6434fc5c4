"""Logs of answers beside their messages, and of the events of streams."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.model.events import Trace
from bylaw.traces import load_trace
from tests.importers.support import calls, lines

USER = {"role": "user", "content": "refund 7"}
CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RETURNED = {"role": "tool", "tool_call_id": "c1", "content": "paid"}
SAID = {"role": "assistant", "content": "Done."}


@pytest.mark.parametrize(
    "log",
    [
        lambda messages, answer: {"model": "m", "messages": messages, "choices": [{"message": answer}], "usage": {}},
        lambda messages, answer: {"input": messages, "output": answer, "latency": 1},
        lambda messages, answer: {"messages": messages, "response": answer},
        lambda messages, answer: {"prompt_id": 3, "messages": messages, "completion": {"message": answer}},
    ],
)
def test_answers_beside_the_messages_are_not_lost(log: Any) -> None:
    trace = load_trace(lines(log([USER], ASKED), log([USER, ASKED, RETURNED], SAID)))
    assert (trace.format, len(trace.sessions), len(trace.turns)) == ("pairs", 1, 2)
    assert [(event.name, event.content) for event in trace.events if event.kind == "tool_result"] == [
        ("refund", "paid")
    ]
    assert trace.turns[1].response.text == "Done."


def test_an_answer_of_which_only_the_text_was_logged() -> None:
    trace = load_trace(lines({"messages": [USER], "output": "Done."}))
    assert [turn.response.text for turn in trace.turns] == ["Done."]
    whole = load_trace(lines({"messages": [USER, SAID], "output": "Done."}))
    assert [turn.response.text for turn in whole.turns] == ["Done."], "the list holds it already"


def chunk(id: str, reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": id, "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": 0, "delta": delta, "finish_reason": reason}]}  # fmt: skip


CHUNKS = [
    chunk("r1", tool_calls=[{"index": 0, "id": "c1", "function": {"name": "refund", "arguments": '{"order"'}}]),
    chunk("r1", tool_calls=[{"index": 0, "function": {"arguments": ": 7}"}}]),
    chunk("r1", "tool_calls"),
    chunk("r2", role="assistant", content="Do"),
    chunk("r2", content="ne."),
    chunk("r2", "stop"),
]
ITEM = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": '{"order": 7}'}
TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
ITEMS = [
    event
    for number, item in enumerate((ITEM, TEXT))
    for event in (
        {"type": "response.created", "response": {"id": f"r{number}", "object": "response", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": f"r{number}", "object": "response", "output": [item]}},
    )
]
BLOCKS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "c1", "name": "refund"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"order": 7}'}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
    {"type": "message_start", "message": {"role": "assistant", "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("events", [CHUNKS, ITEMS, BLOCKS], ids=["chat", "responses", "anthropic"])
def test_events_of_streams(events: list[Any]) -> None:
    trace = load_trace(lines(*events))
    assert (trace.format, len(trace.sessions), trace.complete) == ("pairs", 1, True)
    calls = [(event.name, event.arguments) for event in trace.events if event.kind == "tool_call"]
    assert (calls, trace.turns[1].response.text) == ([("refund", {"order": 7})], "Done.")
    cut = load_trace(lines(*events[:-1]))
    assert not cut.complete and any("cut off" in note for note in cut.notes)


def called(trace: Trace) -> list[Any]:
    return [(call.name, call.arguments) for call in calls(trace)]


def test_chunks_of_several_responses_may_be_mixed() -> None:
    def stream(id: str, order: int) -> list[Any]:
        call = {"index": 0, "id": f"call-{id}", "function": {"name": "refund", "arguments": '{"order"'}}
        rest = {"index": 0, "function": {"arguments": f": {order}}}"}}
        usage = {"id": id, "object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": order}}
        return [chunk(id, tool_calls=[call]), chunk(id, tool_calls=[rest]), chunk(id, "tool_calls"), usage]

    mixed = [one for both in zip(stream("a", 1), stream("b", 2), strict=True) for one in both]
    trace = load_trace(lines(*mixed, *stream("c", 3)))
    assert called(trace) == [("refund", {"order": order}) for order in (1, 2, 3)]
    used = [turn.response.usage and turn.response.usage.input_tokens for turn in trace.turns]
    assert (trace.complete, used) == (True, [1, 2, 3])
    cut = load_trace(lines(*(one for one in mixed if one["id"] != "a" or one is mixed[0]), *stream("c", 3)))
    assert (cut.complete, [arguments for _, arguments in called(cut)]) == (False, [None, {"order": 2}, {"order": 3}])


def test_one_of_many_responses_that_never_ends_does_not_hold_the_others_up() -> None:
    events = [chunk("cut", content="Do"), *(chunk(f"r{n}", "stop", content=str(n)) for n in range(40))]
    trace = load_trace(lines(*events))
    assert (trace.complete, len(trace.turns), trace.turns[0].response.text) == (False, 41, "Do")


def test_a_stream_whose_call_has_no_name_is_a_bad_record() -> None:
    nameless = chunk("r1", tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])
    with pytest.raises(InputError, match="name"):
        load_trace(lines(nameless, chunk("r1", "tool_calls")))


def part(name: str | None = None, arguments: str = "", **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"arguments": arguments, **({} if name is None else {"name": name})}}


@pytest.mark.parametrize(
    "parts",
    [
        [part("refund", '{"n": 1}', index=0, id="a"), part("refund", '{"n": 2}', index=0, id="b")],
        [
            part("refund", '{"n"', index=0, id="a"),
            part(None, ": 1}", index=0),
            part("refund", '{"n"', index=0, id="b"),
            part(None, ": 2}", index=0),
        ],
        [part("refund", '{"n": 1}', id="a"), part("refund", '{"n": 2}', id="b")],
        [part("refund", '{"n": 1}'), part("refund", '{"n": 2}')],
        [
            part("refund", '{"n"', id="a"),
            part("refund", '{"n"', id="b"),
            part(None, ": 1}", id="a"),
            part(None, ": 2}", id="b"),
        ],
        [
            part("refund", '{"n"', index=1, id="b"),
            part("refund", '{"n"', index=0, id="a"),
            part(None, ": 2}", index=1, id="x"),
            part(None, ": 1}", index=0, id="y"),
        ],
        [
            part("refund", '{"n"', index=0, id="a"),
            part("refund", ": 1}", index=0, id="a"),
            part("refund", '{"n": 2}', index=1, id=""),
        ],
    ],
    ids=["one index", "one index in pieces", "no index", "no id", "by id", "an id per chunk", "repeated names"],
)
def test_calls_of_a_stream_are_distinguished_however_its_server_numbers_them(parts: list[Any]) -> None:
    chunks = [chunk("r1", tool_calls=[one]) for one in parts]
    assert called(load_trace(lines(*chunks, chunk("r1", "tool_calls")))) == [("refund", {"n": 1}), ("refund", {"n": 2})]


BODY = json.dumps(
    {"id": "x", "object": "chat.completion", "choices": [{"finish_reason": "tool_calls", "message": ASKED}]}
)
CHAT_STREAM = "".join(f"data: {json.dumps(one)}\n\n" for one in CHUNKS[:3])
BLOCK_STREAM = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in BLOCKS[:6])


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        CHAT_STREAM,
        BLOCK_STREAM,
        '{"city": "Berlin"}',
        "[1] says so.",
        "{so} it is",
        "The list was truncated.",
        "A summary (300 characters)",
    ],
    ids=lambda body: body[:9],
)
def test_a_response_that_is_text_and_whole(body: str) -> None:
    trace = load_trace(lines({"request": {"messages": [USER]}, "response": body}))
    assert (trace.complete, trace.problems, trace.turns[0].response.unread) == (True, (), ())


@pytest.mark.parametrize(
    "body",
    [
        "",
        BODY[:90],
        *(text[: text.index("\n\n", start) + 2] for text in (CHAT_STREAM, BLOCK_STREAM) for start in (0, 150)),
    ],
    ids=["empty", "JSON", "chunk", "chunks", "event", "events"],
)
@pytest.mark.parametrize(
    "wrap", [lambda body: body, lambda body: {"status": 200, "body": body}], ids=["bare", "wrapped"]
)
def test_a_response_that_its_log_cut_off_is_reported(body: str, wrap: Any) -> None:
    whole = {"request": {"messages": [SAID, USER]}, "response": BODY}
    trace = load_trace(lines(whole, {"request": {"messages": [USER]}, "response": wrap(body)}))
    assert (trace.format, trace.complete, [problem.code for problem in trace.problems]) == (
        "pairs",
        False,
        ["unread-content"],
    )


@pytest.mark.parametrize("size", [2, 3], ids=["no arguments", "a part of them"])
@pytest.mark.parametrize("logged", ["text", "events"])
def test_the_arguments_of_a_block_that_does_not_end_are_unknown(size: int, logged: str) -> None:
    start = {**BLOCKS[1], "content_block": {**BLOCKS[1]["content_block"], "input": {}}}
    delta = {**BLOCKS[2], "delta": {"type": "input_json_delta", "partial_json": '{"ord'}}
    events = [BLOCKS[0], start, delta][:size]
    stream = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    cut = [{"request": {"messages": [USER]}, "response": stream}] if logged == "text" else events
    trace = load_trace(lines(*cut))
    assert (trace.complete, called(trace)) == (False, [("refund", None)])
    whole = [BLOCKS[0], start, *BLOCKS[3:6]]
    assert called(load_trace(lines(*whole))) == [("refund", {})], "a call without arguments"


def encoded(body: str) -> str:
    return base64.b64encode(body.encode()).decode()


def packed(body: str) -> str:
    return base64.b64encode(gzip.compress(body.encode())).decode()


def har(text: str, **content: Any) -> dict[str, Any]:
    request = {"url": "https://a.example", "postData": {"text": json.dumps({"messages": [USER]})}}
    response = {"status": 200, "content": {"text": text, **content}}
    return {"log": {"version": "1.2", "entries": [{"request": request, "response": response}]}}


LOGS: dict[str, Any] = {
    "bare": lambda body: {"request": {"messages": [USER]}, "response": body},
    "wrapped": lambda body: {"request": {"messages": [USER]}, "response": {"status": 200, "body": body}},
    "har": har,
    "har that says so": lambda body: har(body, encoding="base64"),
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("encode", [encoded, packed])
@pytest.mark.parametrize("body", [BODY, CHAT_STREAM, BLOCK_STREAM], ids=["JSON", "chunks", "events"])
def test_bodies_in_base64_are_read(body: str, encode: Any, log: str) -> None:
    trace = load_trace(lines(LOGS[log](encode(body))))
    assert (called(trace), trace.complete, trace.problems) == ([("refund", {"order": 7})], True, ())


def test_bytes_as_node_writes_them_are_read() -> None:
    data = {"type": "Buffer", "data": list(BODY.encode())}
    assert called(load_trace(lines(LOGS["wrapped"](data)))) == [("refund", {"order": 7})]


@pytest.mark.parametrize(
    "body",
    [
        encoded(BODY[:90]),
        encoded(CHAT_STREAM[:150]),
        base64.b64encode(bytes(range(256))).decode(),
        BODY[:90] + "... [truncated]",
        "<!DOCTYPE html><title>502</title>",
        {"type": "Buffer", "data": [1, 2, 3]},
        {"reply": "Done."},
    ],
    ids=["a part in base64", "a part of a stream", "bytes", "marked", "page", "buffer", "unknown"],
)
@pytest.mark.parametrize("log", LOGS)
def test_a_body_that_is_not_read_is_not_the_text_of_an_answer(body: Any, log: str) -> None:
    if log.startswith("har") and not isinstance(body, str):
        pytest.skip("HAR holds text")
    whole = {"request": {"messages": [SAID, USER]}, "response": BODY}
    written = LOGS[log](body)
    trace = load_trace(lines(written) if "log" in written else lines(whole, written))
    assert [problem.code for problem in trace.problems] == ["unread-content"]
    assert not trace.complete and all(not turn.response.text for turn in trace.turns)


@pytest.mark.parametrize(
    "mark",
    [
        "... [truncated]",
        "[TRUNCATED]",
        "<truncated>",
        "… (truncated, 1,024 more characters)",
        "...(litellm_truncated skipped 900 chars)",
        "...(1024 more bytes)",
        "[+1,024 chars more]",
        "... truncated",
    ],
)
def test_an_answer_that_says_that_it_was_cut_is_reported(mark: str) -> None:
    trace = load_trace(lines({"messages": [USER], "output": f"Your refund is {mark}"}))
    assert (trace.complete, trace.turns[0].response.unread) == (False, ("*",))
