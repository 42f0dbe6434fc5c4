"""HTTP replies that stream: what the agent said is put together, or the run is an error that says why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.contract.agents.replies import read_reply
from bylaw.contract.live_agent import Failure
from bylaw.wire.formats import FORMATS, format_named

CARD = ("Your card is 4111 11", "11 1111 ", "1111.")
WHOLE = "".join(CARD)
SSE, LINES = "text/event-stream; charset=utf-8", "application/x-ndjson"


def events(*data: Any, name: str | None = None) -> bytes:
    texts = (one if isinstance(one, str) else json.dumps(one) for one in data)
    head = f"event: {name}\n" if name else ""
    return "".join(f"{head}data: {text}\n\n" for text in texts).encode()


def lines(*objects: Any) -> bytes:
    return "\n".join(map(json.dumps, objects)).encode()


def provider(name: str) -> bytes:
    reply: dict[str, Any] = {
        "openai": {"id": "c", "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": WHOLE}}]},
        "anthropic": {"role": "assistant", "stop_reason": "end_turn", "content": [{"type": "text", "text": WHOLE}]},
        "openai_responses": {
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": WHOLE}]}],
        },
    }[name]
    return b"".join(format_named(name).stream(reply))


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        *((SSE, provider(wire.name)) for wire in FORMATS),
        ("text/plain", provider("openai")),
        (SSE, events(*CARD, "[DONE]")),
        (SSE, events(*CARD).rstrip()),
        (SSE, b": keep-alive\n\n" + events(*CARD).replace(b"\n", b"\r\n")),
        (SSE, events(*map(json.dumps, CARD))),
        (SSE, events(*({"token": text} for text in CARD))),
        (SSE, events({"run_id": 7}, name="metadata") + events(*({"content": text} for text in CARD), name="data")),
        (SSE, events(*({"type": "text-delta", "id": "1", "delta": text} for text in CARD), {"type": "text-end"})),
        (SSE, events(*({"text": text} for text in CARD), {"text": WHOLE})),
        (SSE, events(*({"text": WHOLE[:end]} for end in (3, 9, len(WHOLE))))),
        (SSE, events({"type": "tool_result", "content": "x"}, {"type": "answer", "content": WHOLE})),
        (LINES, lines(*({"response": text, "done": False} for text in CARD), {"response": "", "done": True})),
        (LINES, lines(*({"message": {"role": "assistant", "content": text}} for text in CARD))),
        ("application/json", lines(*({"delta": text} for text in CARD))),
        ("", lines(*({"choices": [{"delta": {"content": text}}]} for text in CARD))),
    ],
)
def test_the_text_of_a_stream_is_the_answer(content_type: str, body: bytes) -> None:
    assert read_reply(200, body, None, content_type) == WHOLE


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
def test_no_message_of_several_is_left_out(wire: Any) -> None:
    assert read_reply(200, provider(wire.name) * 2, None, SSE) == WHOLE * 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("payload.words.0", events(*({"payload": {"words": [text]}} for text in CARD), {"done": True})),
        ("choices.0.message.content", provider("openai")),
    ],
)
def test_response_path_is_where_each_event_holds_its_text(path: str, body: bytes) -> None:
    assert read_reply(200, body, path, SSE) == WHOLE


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        (events({"step": 1}, {"step": 2}), None, "a stream of 2 events in which no text is found"),
        (events({"a": "x"}), "b.c", "none of the 1 events of the stream has `b.c`"),
        (events({"message": "quota"}, name="error"), None, "the stream reports an error"),
        (events({"error": {"message": "quota"}}), None, "quota"),
        (b"", None, "a stream of 0 events"),
    ],
)
def test_a_stream_that_cannot_be_put_together_is_an_error(body: bytes, path: str | None, said: str) -> None:
    read = read_reply(200, body, path, SSE)
    assert isinstance(read, Failure) and said in read.reason


@pytest.mark.parametrize(
    ("content_type", "body", "answer"),
    [
        ("application/json", b'{"answer": "data: hello"}', "data: hello"),
        ("text/plain", b"data: a word\nand another line", "data: a word\nand another line"),
        ("text/plain", b'{"a": 1}\n{"a": 2}', '{"a": 1}\n{"a": 2}'),
        ("application/json", b'{"answer": "half \\ud83d"}', "half \ufffd"),
        ("application/json", b'{\n  "answer": "on lines"\n}', "on lines"),
    ],
)
def test_what_is_no_stream_is_read_as_before(content_type: str, body: bytes, answer: str) -> None:
    assert read_reply(200, body, None, content_type) == answer
