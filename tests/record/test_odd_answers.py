"""The agent gets any answer of a server as it would without a recording, and every call is counted."""

from __future__ import annotations

import codecs
import gzip
import http.client
import json
import socket
import tempfile
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bylaw
from bylaw.record import recording as recordings
from bylaw.record.recording import Recording
from bylaw.record.turns import RecordedExchange
from bylaw.wire.exchange import Exchange, Incoming, Outgoing
from tests.record.model_clients import read, responses

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
ASKED = dict(zip(PATHS, (CHAT, CHAT, {"model": "m", "input": "x"}), strict=True))
STREAM = {"content-type": "text/event-stream"}
DONE = b"data: [DONE]\n\n"
WORDS = [
    *("choices", "delta", "message", "index", "tool_calls", "function", "arguments", "name", "id", "type", "content"),
    *("content_block", "output", "item", "output_index", "response", "error", "status", "usage", "finish_reason"),
    *(
        "message_start",
        "content_block_start",
        "content_block_delta",
        "message_stop",
        "input_json_delta",
        "partial_json",
    ),
    *("response.created", "response.output_item.done", "response.completed", "function_call", "tool_use", "text"),
]
_words = st.sampled_from(WORDS)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | _words | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)
_deltas = st.fixed_dictionaries({"index": _values, "delta": st.dictionaries(_words, _values, max_size=3)})
_chunks = st.fixed_dictionaries({"choices": st.lists(_deltas, max_size=2)})
_typed = st.builds(lambda kind, rest: {**rest, "type": kind}, _words, st.dictionaries(_words, _values, max_size=4))
_events = st.lists(_values | _chunks | _typed, max_size=4)
_lengths = st.none() | st.just("9" * 5000) | st.integers(0, 200).map(str) | st.text(max_size=3)


def _request(path: str, **headers: str) -> Outgoing:
    return Outgoing("POST", f"http://127.0.0.1{path}", headers, json.dumps(ASKED[path]).encode())


def _event(data: Any) -> bytes:
    kind = data.get("type") if isinstance(data, dict) else None
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


@given(
    path=st.sampled_from(PATHS),
    events=_events,
    whole=_values,
    streamed=st.booleans(),
    length=_lengths,
    encoding=st.none() | st.sampled_from(["gzip", "br", "zstd", "odd"]),
    retries=st.sampled_from(["", "1", "9" * 5000, "²"]),
)
def test_any_answer_is_recorded_or_counted_as_lost(
    path: str, events: list[Any], whole: Any, streamed: bool, length: str | None, encoding: str | None, retries: str
) -> None:
    headers = {**(STREAM if streamed else {})}
    if length is not None:
        headers["content-length"] = length
    if encoding is not None:
        headers["content-encoding"] = encoding
    pieces = [*map(_event, events), DONE] if streamed else [json.dumps(whole).encode()]
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(f"{folder}/run.jsonl")
        passing = recording.listen(Exchange(_request(path, **{"x-stainless-retry-count": retries})))
        assert isinstance(passing, RecordedExchange)
        passing.head(200, headers)
        for piece in pieces:
            passing.chunk(piece)
        passing.end()
        buffered = recording.listen(Exchange(_request(path)))
        answer = Incoming(200, headers, b"".join(pieces))
        assert buffered.answer(answer) == answer
        buffered.end()
        recording.close()
    assert recording.turns + recording.errors + recording.lost == 2


def test_an_answer_that_cannot_be_read_is_counted_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(heard: RecordedExchange) -> Any:
        raise TypeError("unhashable type: 'list'")

    path = tmp_path / "run.jsonl"
    recording = Recording(str(path))
    monkeypatch.setattr(RecordedExchange, "_read", odd)
    passing = recording.listen(Exchange(_request(PATHS[0])))
    passing.head(200, STREAM)
    passing.chunk(DONE)
    passing.end()
    recording.close()
    assert (recording.turns, recording.errors, recording.lost) == (0, 0, 1)
    assert not read(path).complete


def _answered(recording: Recording) -> RecordedExchange:
    passing = recording.listen(Exchange(_request(PATHS[0])))
    assert isinstance(passing, RecordedExchange)
    passing.head(200, {})
    passing.chunk(json.dumps({"choices": [{"message": {"role": "assistant", "content": "hi"}}]}).encode())
    return passing


@pytest.mark.parametrize("patience", [300.0, 0.0])
def test_closing_a_recording_waits_for_a_turn_that_is_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """If it waits too long, the recording says that the turn is missing."""
    reading, go_on = threading.Event(), threading.Event()
    read_it = RecordedExchange._read

    def slowly(heard: RecordedExchange) -> Any:
        reading.set()
        go_on.wait(300)
        return read_it(heard)

    monkeypatch.setattr(RecordedExchange, "_read", slowly)
    monkeypatch.setattr(recordings, "_PATIENCE", patience)
    recording = Recording(str(tmp_path / "run.jsonl"))
    agent = threading.Thread(target=_answered(recording).end)
    agent.start()
    reading.wait(300)
    closing = threading.Thread(target=recording.close)
    closing.start()
    if patience:
        closing.join(0.1)
        go_on.set()
    closing.join()
    go_on.set()
    agent.join()
    trace = read(tmp_path / "run.jsonl")
    kept = 1 if patience else 0
    assert (recording.turns, recording.lost, len(responses(trace))) == (kept, 1 - kept, kept)
    assert trace.complete == bool(patience)


def test_what_begins_after_the_end_is_not_heard(tmp_path: Path) -> None:
    recording = Recording(str(tmp_path / "run.jsonl"))
    recording.close()
    exchange = Exchange(_request(PATHS[0]))
    assert recording.listen(exchange) is exchange


def test_the_end_of_one_recording_does_not_complete_another(tmp_path: Path) -> None:
    outer, inner = (Recording(str(tmp_path / name)) for name in ("outer.jsonl", "inner.jsonl"))
    passing = inner.listen(outer.listen(Exchange(_request(PATHS[0]))))
    inner.close()
    passing.head(200, {})
    passing.chunk(json.dumps({"choices": [{"message": {"role": "assistant", "content": "hi"}}]}).encode())
    passing.end()
    outer.close()
    assert (inner.turns, inner.errors, outer.turns, outer.errors) == (0, 1, 1, 0)


def test_the_memory_for_sessions_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_MOST_SESSIONS", 3)
    recording = Recording(str(tmp_path / "run.jsonl"))
    for name in "abcada":
        recording._known_calls(name).add(name)
    assert recording._known == {"c": {"c"}, "d": {"d"}, "a": {"a"}}
    recording.close()


def _recorded(body: bytes, reply: bytes, folder: Path, **headers: str) -> tuple[Recording, str]:
    recording = Recording(f"{folder}/run.jsonl")
    headers.setdefault("content-type", "application/json")
    exchange = recording.listen(Exchange(Outgoing("POST", "http://127.0.0.1/v1/chat/completions", headers, body)))
    exchange.head(200, {"content-type": "application/json"})
    exchange.chunk(reply)
    exchange.end()
    recording.close()
    return recording, Path(f"{folder}/run.jsonl").read_text()


@pytest.mark.parametrize("half", ["\\ud83d", "\\uDE00 after"])
def test_half_a_surrogate_pair_is_recorded_as_a_replacement_character(tmp_path: Path, half: str) -> None:
    asked = f'{{"model": "m", "messages": [{{"role": "user", "content": "asked {half}"}}]}}'
    said = f'{{"choices": [{{"index": 0, "message": {{"content": "said {half}"}}, "finish_reason": "stop"}}]}}'
    recording, text = _recorded(asked.encode(), said.encode(), tmp_path)
    assert (recording.turns, recording.lost) == (1, 0)
    assert "asked \ufffd" in text and "said \ufffd" in text


def test_a_request_to_a_model_that_cannot_be_read_is_counted_as_lost(tmp_path: Path) -> None:
    recording, text = _recorded(b'{"model": "m", "messages": [', b"{}", tmp_path)
    assert (recording.turns, recording.lost) == (0, 1) and '"complete":false' in text


def test_a_form_that_is_posted_to_such_a_path_is_not_a_request_to_a_model(tmp_path: Path) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    recording, _ = _recorded(b"a=b", b"{}", tmp_path, **kind)
    assert (recording.turns, recording.lost) == (0, 0)


# Answers that a client reads, however they are written

SAID = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "on\u2028time"}, "finish_reason": "stop"}]}
BODY = json.dumps(SAID, ensure_ascii=False).encode()
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "on\xe2\x80\xa8time"}}]}'


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, codecs.BOM_UTF8 + BODY),
        ({}, json.dumps(SAID).encode("utf-16")),
        ({}, BODY[:-1] + b', "score": NaN}'),
        ({"content-encoding": "deflate"}, _raw_deflate(BODY)),
        ({"content-encoding": "deflate"}, zlib.compress(BODY)),
        ({"content-encoding": "gzip, gzip"}, gzip.compress(gzip.compress(BODY))),
        (STREAM, EVENT + b"\r\n\n" + DONE),
        (STREAM, codecs.BOM_UTF8 + EVENT + b"\r\r"),
    ],
)
def test_an_answer_is_recorded_however_it_is_written(tmp_path: Path, headers: dict[str, str], body: bytes) -> None:
    recording = Recording(str(tmp_path / "run.jsonl"))
    exchange = recording.listen(Exchange(_request(PATHS[0])))
    exchange.head(200, {"content-type": "application/json", **headers})
    exchange.chunk(body)
    exchange.end()
    recording.close()
    assert (recording.turns, recording.errors, recording.lost) == (1, 0, 0)
    assert [one.text for one in responses(read(tmp_path / "run.jsonl"))] == ["on\u2028time"]


@pytest.mark.parametrize(("packed", "counts"), [(gzip.compress, (1, 0)), (lambda body: b"\x1f\x8b broken", (0, 1))])
def test_a_compressed_request_is_read_or_counted_as_lost(tmp_path: Path, packed: Any, counts: tuple[int, int]) -> None:
    recording = Recording(str(tmp_path / "run.jsonl"))
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    asked = Outgoing("POST", f"http://127.0.0.1{PATHS[0]}", headers, packed(json.dumps(CHAT).encode()))
    exchange = recording.listen(Exchange(asked))
    exchange.head(200, {"content-type": "application/json"})
    exchange.chunk(BODY)
    exchange.end()
    recording.close()
    assert (recording.turns, recording.lost) == counts


CHUNKS = (b'data: {"choices": [{"index": 0, "delta": {"content": "on', b' time"}}]}', b"\r\n", b"\r\n", DONE)


def _serve_chunks(listener: socket.socket) -> None:
    """Answer one request with a chunked body; two chunks are line ends."""
    connection, _ = listener.accept()
    with connection:
        while b"\r\n\r\n" not in connection.recv(65536, socket.MSG_PEEK):
            pass
        connection.recv(65536)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*CHUNKS, b"")))


@pytest.mark.parametrize("size", [None, 1, 2, 5, 4096])
def test_no_chunk_is_taken_for_the_line_end_after_one(tmp_path: Path, size: int | None) -> None:
    import requests

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve_chunks, args=(listener,))
        thread.start()
        with bylaw.record(tmp_path / "run.jsonl") as recording:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}{PATHS[0]}"
            with requests.post(url, json=CHAT, stream=True) as reply:
                assert b"".join(reply.iter_content(size)) == b"".join(CHUNKS)
        thread.join()
    assert (recording.turns, recording.lost) == (1, 0)
    assert [one.text for one in responses(read(tmp_path / "run.jsonl"))] == ["on time"]


def test_a_request_that_is_assembled_by_hand_is_counted_as_lost(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, bylaw.record(tmp_path / "run.jsonl") as recording:
        connection = http.client.HTTPConnection(*listener.getsockname())
        connection.putrequest("POST", "/v1/tools/search")
        connection.close()
        assert recording.lost == 0
        connection.putrequest("POST", PATHS[0])
        connection.close()
    assert (recording.turns, recording.lost) == (0, 1)
