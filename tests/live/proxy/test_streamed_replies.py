"""HTTP replies that stream: what the agent said is put together, or the run is an error that says why not."""

from __future__ import annotations

import asyncio
import codecs
import gzip
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bylaw.contract.agents import open_agent
from bylaw.contract.agents.answers import answer_text
from bylaw.contract.agents.replies import read_output, read_reply
from bylaw.contract.checks import has_no_pii, readings
from bylaw.contract.faults import Injection
from bylaw.contract.live_agent import AgentRun, Failure
from bylaw.contract.model import AgentSpec
from bylaw.wire.exchange import MOST_KEPT, Incoming, decompress
from bylaw.wire.formats import FORMATS, format_named

pytestmark = pytest.mark.sampled(2)

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


def gemini() -> list[Any]:
    said = [{"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}]} for text in CARD]
    said[-1]["candidates"][0]["finishReason"] = "STOP"
    return said


def responses_whole() -> Any:
    message = {"type": "message", "content": [{"type": "output_text", "text": WHOLE}]}
    return {"type": "response.completed", "response": {"status": "completed", "output": [message]}}


OTHERS = [
    events(*({"index": 0, "token": {"id": 1, "text": text}, "generated_text": None} for text in CARD)),
    events(*({"event": "message", "answer": text, "conversation_id": "c"} for text in CARD), {"event": "message_end"}),
    events({"type": "RUN_STARTED"}, *({"type": "TEXT_MESSAGE_CONTENT", "delta": text} for text in CARD),
           {"type": "TEXT_MESSAGE_END"}, {"type": "RUN_FINISHED"}),
    events({"type": "message-start"}, *({"type": "content-delta", "delta": {"message": {"content": {"text": text}}}}
                                        for text in CARD), {"type": "message-end"}),
    events(*({"object": "thread.message.delta", "delta": {"content": [{"type": "text", "text": {"value": text}}]}}
             for text in CARD), "[DONE]"),
    events(*([{"type": "AIMessageChunk", "content": text}, {"langgraph_node": "agent"}] for text in CARD)),
]  # fmt: skip
"""of TGI, Dify, AG-UI, Cohere, OpenAI's assistants and LangGraph"""
FINISHED = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        *((SSE, provider(wire.name)) for wire in FORMATS),
        ("text/plain", provider("openai")),
        (SSE, events(*CARD, "[DONE]")),
        (SSE, events(*CARD).rstrip() + b"\n"),
        (SSE, events(*({"token": text} for text in CARD)).rstrip()),
        (SSE, events(*CARD, "[DONE]").rstrip()),
        (SSE, events(*gemini())),
        (SSE, events(*CARD[:1], {"text": CARD[1]}, *CARD[2:])),
        (SSE, events("Your card is ", "4111", {"text": " "}, "1111", {"text": " 1111 1111."})),
        (SSE, events(*({"type": "message_chunk", "content": text} for text in CARD))),
        (SSE, events(*({"type": "response.chunk", "text": text} for text in CARD))),
        (SSE, events({"type": "message_delta", "delta": CARD[0]}, *({"type": "message_delta", "delta": text}
                                                                   for text in CARD[1:]))),
        (SSE, events(responses_whole())),
        (SSE, events(*map(json.dumps, CARD), "", name="data")),
        (SSE, events(*map(json.dumps, CARD[:2]), CARD[2])),
        (SSE, events({"type": "tool_result", "error": {"message": "no"}}, *({"text": text} for text in CARD))),
        (SSE, events({"messageStart": {"role": "assistant"}}, *({"contentBlockDelta": {"delta": {"text": text}}}
            for text in CARD), {"messageStop": {"stopReason": "end_turn"}})),
        *((SSE, body) for body in OTHERS),
        ("application/json", json.dumps(gemini()).encode()),
        ("application/json", json.dumps([{"delta": text} for text in CARD]).encode()),
        ("application/json", json.dumps([{"type": "text", "text": text, "id": "1"} for text in CARD]).encode()),
        ("application/json", json.dumps({"output": [{"delta": text} for text in CARD]}).encode()),
        ("application/json", json.dumps({"output": list(CARD)}).encode()),
        ("application/json", json.dumps(list(CARD)).encode()),
        ("application/json", json.dumps({"output": provider("openai").decode()}).encode()),
        ("application/json", json.dumps(provider("anthropic").decode()).encode()),
        ("application/json", json.dumps([{"role": "user", "content": "?"}, {"role": "assistant", "content": WHOLE}])
         .encode()),
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
        ("application/json", b"".join(json.dumps({"delta": text}).encode() for text in CARD)),
        (SSE, codecs.BOM_UTF8 + events(*CARD)),
        (SSE, events(*CARD).replace(b"\n\n", b"\r\n\n")),
        (
            "text/plain",
            b"".join(b"0:%b\n" % json.dumps(text).encode() for text in CARD) + b'd:{"finishReason":"stop"}\n',
        ),
        ("text/event-stream; charset=utf-16", "".join(f"data: {text}\n\n" for text in CARD).encode("utf-16")),
        ("", lines(*({"choices": [{"delta": {"content": text}}]} for text in CARD), FINISHED)),
    ],
)  # fmt: skip
def test_the_text_of_a_stream_is_the_answer(content_type: str, body: bytes) -> None:
    assert read_reply(200, body, None, content_type) == WHOLE


def _interleaved(*choices: int) -> bytes:
    said = [{"choices": [{"index": index, "delta": {"content": text}}]} for text in CARD for index in choices]
    return events(*said, "[DONE]")


def test_choices_that_are_interleaved_are_put_together_each() -> None:
    assert read_reply(200, _interleaved(0, 1), None, SSE) == WHOLE * 2


def _cuts(name: str) -> list[bytes]:
    """The stream of a provider, cut after each event and in the middle of each, but for its end."""
    whole = provider(name)
    ends = [at + 2 for at in range(len(whole)) if whole.startswith(b"\n\n", at)]
    has_ended = {"openai": 2, "anthropic": 1, "openai_responses": 1}[name]
    return [whole[:end] for end in ends[:-has_ended]] + [whole[: end - 9] for end in ends[:-has_ended]]


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
@pytest.mark.parametrize("content_type", [SSE, "text/plain"])
def test_a_stream_that_is_cut_off_is_an_error(wire: Any, content_type: str) -> None:
    cuts = _cuts(wire.name)
    assert len(cuts) > 6
    for body in cuts:
        read = read_reply(200, body, None, content_type)
        assert isinstance(read, Failure) and "cut off" in read.reason, (body, read)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (SSE, events(*CARD).rstrip()[:-2]),
        (SSE, events(*CARD) + b"dat"),
        (SSE, events(*({"token": text} for text in CARD)).rstrip()[:-3]),
        (SSE, events(*gemini()[:-1])),
        (SSE, events({"type": "RUN_STARTED"}, {"type": "TEXT_MESSAGE_CONTENT", "delta": WHOLE})),
        (SSE, events({"type": "text-start", "id": "1"}, {"type": "text-delta", "id": "1", "delta": WHOLE})),
        (LINES, lines(*({"response": text, "done": False} for text in CARD))),
        (LINES, lines(*({"delta": text} for text in CARD))[:-3]),
        ("application/json", lines(*({"delta": text} for text in CARD))[:-3]),
        ("text/plain", b"".join(json.dumps({"delta": text}).encode() for text in CARD)[:-3]),
        ("text/plain", b"".join(b"0:%b\n" % json.dumps(text).encode() for text in CARD)),
        ("text/plain", b"".join(b"0:%b\n" % json.dumps(text).encode() for text in CARD)[:-4]),
        ("application/json", json.dumps(gemini()).encode()[:-20]),
    ],
)
def test_any_stream_that_is_cut_off_is_an_error(content_type: str, body: bytes) -> None:
    read = read_reply(200, body, None, content_type)
    assert isinstance(read, Failure) and ("cut off" in read.reason or "no JSON that can be read" in read.reason), read


@pytest.mark.parametrize("whole", [True, False])
def test_a_small_reply_that_expands_to_much_is_given_up_early(whole: bool) -> None:
    pack = zstandard.ZstdCompressor().compressobj()
    body = b"".join(pack.compress(bytes(1 << 20)) for _ in range(128)) + pack.flush()
    tracemalloc.start()
    try:
        assert decompress(Incoming(200, {"content-encoding": "zstd"}, body), whole=whole) is None
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_KEPT
    finally:
        tracemalloc.stop()


PACKED = gzip.compress(b"Your order is on its way. " * 20)


@pytest.mark.parametrize(
    ("head", "body", "is_whole"),
    [
        (b"content-length: 500\r\n", b"hello", False),
        (b"transfer-encoding: chunked\r\n", b"5\r\nhello\r\n", False),
        (b"transfer-encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n", True),
        (b"content-encoding: gzip\r\n", PACKED[:-9], False),
        (b"content-encoding: gzip\r\n", PACKED, True),
        (b"content-encoding: deflate\r\n", zlib.compress(b"hello" * 9)[:-5], False),
        (b"content-encoding: zstd\r\n", zstandard.compress(b"hello" * 99)[:-2], False),
        (b"content-encoding: zstd\r\n", zstandard.compress(b"hello" * 99), True),
        (b"content-type: text/event-stream\r\n", provider("openai")[:-60], False),
        (b"content-type: application/json\r\n", b'{"output": "hel', False),
        (b"", b'{"output": "hel', False),
        (b"", b'[{"text": "hello"},', False),
        (b"content-length: 15\r\n", b'{"output": "hel', True),  # what the agent said, all of it
        (b"", b'{"output" is a key', True),
        (b"", b"hello", True),
    ],
)
def test_a_reply_that_is_cut_off_on_its_way_is_an_error(head: bytes, body: bytes, is_whole: bool) -> None:
    async def go() -> AgentRun:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as started:
            url = f"http://127.0.0.1:{started.sockets[0].getsockname()[1]}"
            live = open_agent(AgentSpec(type="http", endpoint=url, timeout_ms=300_000), Path())
            await live.start()
            try:
                return await live.run("go", Injection(run="test"))
            finally:
                await live.stop()

    asked: list[bytes] = []
    run = asyncio.run(go())
    assert (run.failure is None) is is_whole, run.failure
    assert b"accept-encoding: identity" in asked[0].lower()


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


def test_a_line_separator_inside_json_does_not_end_the_line() -> None:
    said = json.dumps({"text": "one\u2028two\x85three"}, ensure_ascii=False)
    assert read_reply(200, events(said, {"text": " four"}), None, SSE) == "one\u2028two\x85three four"


OF_PROVIDERS = [
    {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": WHOLE}}]},
    {"id": "r", "status": "completed", "output": [{"type": "reasoning", "summary": []}, {
        "type": "message", "content": [{"type": "output_text", "text": text} for text in CARD]}]},
    {"type": "message", "role": "assistant", "content": [{"type": "text", "text": text} for text in CARD]},
    {"content": [{"type": "text", "text": text} for text in CARD]},
    [{"type": "text", "text": text} for text in CARD],
]  # fmt: skip


@pytest.mark.parametrize("reply", OF_PROVIDERS)
def test_whole_replies_of_providers_and_content_blocks_are_their_text(reply: Any) -> None:
    assert read_reply(200, json.dumps(reply).encode(), None, "application/json") == WHOLE
    assert answer_text(reply) == WHOLE


DATA = [
    {"error": "E42", "fix": "restart the router"},
    {"order": "A-17", "status": "failed", "reason": "card declined"},
    {"ok": False, "violations": ["a", "b"]},
    ["apple", "pear"],
    [{"name": "Ada", "text": "first"}, {"name": "Bo", "text": "second"}],
    [1, 2],
]
"""answers that are about errors, and lists that are no streams"""
FAILURES = [
    {"error": "no tokens left"},
    {"error": {"code": 429, "message": "no tokens left"}},
    {"error": "no tokens left", "message": "try again", "statusCode": 429, "request_id": "r1"},
    {"error": True, "message": "no tokens left"},
    {"errors": [{"message": "no tokens left"}], "data": None},
    {"status": "error", "message": "no tokens left"},
    {"status": "fail", "data": {"why": "no tokens left"}},
    {"type": "error", "error": {"message": "no tokens left"}},
    {"statusCode": 500, "message": "no tokens left"},
    {"object": "error", "message": "no tokens left", "code": 429},
    {"ok": False, "detail": "no tokens left"},
    {"success": False, "output": "no tokens left"},
    {"isError": True, "content": [{"type": "text", "text": "no tokens left"}]},
    {"exception": "no tokens left", "traceback": "…"},
    {"id": "t1", "kind": "task", "status": {"state": "failed", "message": "no tokens left"}},
]


@pytest.mark.parametrize("reported", FAILURES, ids=str)
@pytest.mark.parametrize("inside", [None, "output", "result"])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
def test_data_that_reports_a_failure_is_an_error(reported: Any, inside: str | None, content_type: str) -> None:
    body = json.dumps(reported if inside is None else {inside: reported}).encode()
    read = read_reply(200, body, None, content_type)
    assert isinstance(read, Failure) and read.kind == "error" and "no tokens left" in read.reason
    if inside is None:
        for text in (json.dumps(body.decode()), json.dumps({"output": body.decode()})):
            assert isinstance(read_reply(200, text.encode(), None, content_type), Failure)
        assert isinstance(read_reply(200, body, "output", content_type), Failure)
        assert isinstance(read_output(body), Failure)


@pytest.mark.parametrize(
    ("content_type", "body", "answer"),
    [
        ("application/json", b'{"score": NaN, "output": "fine"}', "fine"),
        ("application/json", b'{"output": "two\nlines"}', "two\nlines"),
        ("application/json", codecs.BOM_UTF8 + b'{"output": "marked"}', "marked"),
        ("application/json; charset=utf-16", json.dumps({"output": "wide"}).encode("utf-16"), "wide"),
        ("text/plain; charset=latin-1", "gr\xf6\xdfe".encode("latin-1"), "gr\xf6\xdfe"),
        ("text/plain; charset=nonsense", b"plain", "plain"),
        ("application/json", b"not JSON at all", "not JSON at all"),
        ("application/json", b'{"status": "error", "output": "judged"}', "judged"),
        *(("application/json", json.dumps(data).encode(), json.dumps(data, separators=(",", ":"))) for data in DATA),
        ("application/json", b'{"error": null, "answer": "fine"}', "fine"),
        ("application/json", b'{"error": "ignored", "answer": "fine"}', "fine"),
        ("application/json", b'{"error": "none", "status": "ok", "message": "fine"}', "fine"),
        ("application/json", b'{"error": false, "data": "fine"}', "fine"),
    ],
)
def test_how_a_reply_is_written_does_not_matter(content_type: str, body: bytes, answer: str) -> None:
    assert read_reply(200, body, None, content_type) == answer


@pytest.mark.parametrize(
    ("status", "content_type", "body", "said"),
    [
        (302, "text/html", b"moved", "HTTP 302"),
        (204, "", b"", "no body"),
        (200, "application/json", b" ", "no body"),
        (200, "application/json", b"null", "null"),
        (200, "application/json", b'{"output": ' + b"[" * 100_000, "no JSON that can be read"),
        (200, "application/json", b'{"output": "cut of', "no JSON that can be read"),
        (200, "multipart/mixed; boundary=x", b"--x\r\n\r\na\r\n--x--", "several parts"),
        (200, "application/json", b'{"status": "error", "message": "no tokens left"}', "no tokens left"),
        (200, "text/plain", b'0:"a"\n3:"no tokens left"\n', "no tokens left"),
        (200, "application/json", b'[{"error": {"message": "no tokens left"}}]', "no tokens left"),
        (200, "application/json", b'{"detail": "Not Found"}', "Not Found"),
        (200, "application/json", b'{"object": "chat.completion", "choices": []}', "no answer"),
        (200, "application/json", b'{"promptFeedback": {"blockReason": "SAFETY"}}', "SAFETY"),
        (200, SSE, events({"type": "text-delta", "delta": "a"}, {"type": "abort"}), "abort"),
        (200, SSE, events({"choices": [{"delta": {"tool_calls": []}}]}, "[DONE]"), "no text is found"),
    ],
)
def test_what_is_no_answer_is_a_failure(status: int, content_type: str, body: bytes, said: str) -> None:
    read = read_reply(status, body, None, content_type)
    assert isinstance(read, Failure) and said in read.reason


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        (events({"step": 1}, {"step": 2}), None, "a stream of 2 events in which no text is found"),
        (events({"a": "x"}), "b.c", "none of the 1 events of the stream has `b.c`"),
        (events({"message": "quota"}, name="error"), None, "the stream reports an error"),
        (events({"error": {"message": "quota"}}), None, "quota"),
        (events({"text": "Your"}, {"error": "quota"}), None, "quota"),
        (events({"type": "RUN_STARTED"}, {"type": "RUN_ERROR", "message": "quota"}), None, "quota"),
        (events({"text": "Your"}, '{"text": "car', {"text": "is"}), None, "cannot be read"),
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


@pytest.mark.parametrize(
    ("answer", "is_clean"),
    [
        ('["card 4111 11","11 1111 1111"]', False),
        ('["4111","1111","1111","1111"]', False),
        ('[{"to": "Bo", "said": "card 4111 11"}, {"to": "Bo", "said": "11 1111 1111"}]', False),
        ('{"to": "Bo", "said": "card 4111 11"}\n{"to": "Bo", "said": "11 1111 1111"}', False),
        (
            '{"o": {"content": [{"type": "text", "text": "card 4111 11"}, {"type": "text", "text": "11 1111 1111"}]}}',
            False,
        ),
        ('{"orders": ["4111", "1111", "1111", "1111"]}', True),
        ('[{"order": "4111"}, {"order": "1111"}, {"order": "1111"}, {"order": "1111"}]', True),
        ('["apple", "pear"]', True),
    ],
)
def test_seams_in_data_hide_nothing_that_is_forbidden(answer: str, is_clean: bool) -> None:
    """Lists that may be data or a text in pieces stay data, and are searched as one text too."""
    assert read_output(answer.encode()) == answer
    assert all(has_no_pii(reading).holds for reading in readings(answer)) is is_clean


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (b"fine\n", "fine"),
        (b"  fine  \r\n", "  fine  "),
        (b"\x1b[31m4111\x1b[0m 1111\x1b]8;;http://x\x07 link", "4111 1111 link"),
        (events(*CARD), WHOLE),
        (lines({"type": "system", "session": 1}, *({"type": "assistant", "message": {"content": [
            {"type": "text", "text": text}]}} for text in CARD), {"type": "result", "result": WHOLE}), WHOLE),
        (lines({"type": "assistant", "message": {"content": WHOLE}}, {"type": "result", "result": WHOLE}), WHOLE),
        (codecs.BOM_UTF8 + b"marked", "marked"),
        (b"INFO started\n" + events(*({"token": text} for text in CARD)), f"INFO started\n{WHOLE}"),
        (b"INFO started\n" + lines(*({"delta": text} for text in CARD)), f"INFO started\n{WHOLE}"),
        ("wide".encode("utf-16"), "wide"),
        (b'{"order": "A-17"}', '{"order": "A-17"}'),
        (b'{"output": "as it is"}', '{"output": "as it is"}'),
    ],
)  # fmt: skip
def test_what_a_command_prints_is_its_answer(output: bytes, answer: str) -> None:
    assert read_output(output) == answer


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (b"", "printed nothing"),
        (b" \n\x1b[0m\n", "printed nothing"),
        (b'{"error": "no tokens left"}', "no tokens left"),
        (events({"step": 1}), "no text is found"),
        (b"2026-03-02 10:00:00 started\n" + b'{"error": "no tokens left"}', "no tokens left"),
        (events("no tokens left", name="error"), "no tokens left"),
        (b'[{"error": {"message": "no tokens left"}}]', "no tokens left"),
    ],
)
def test_what_a_command_prints_may_be_no_answer(output: bytes, said: str) -> None:
    read = read_output(output)
    assert isinstance(read, Failure) and said in read.reason
