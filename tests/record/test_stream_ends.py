"""How a stream ended, and who ended it: the mark of its format, the server without one, or the agent."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

import bylaw
from bylaw.record.recording import Recording
from bylaw.wire.exchange import Exchange, Incoming
from tests.record.model_clients import notes, read, responses
from tests.record.test_odd_answers import CHAT, PATHS, STREAM, _request

SAID = b'data: {"choices": [{"index": 0, "delta": {"content": "on time"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
BY_SERVER = "the server ended the stream before the answer was complete"
BY_AGENT = "the agent stopped reading"


@contextmanager
def answering(body: bytes, framing: str, kind: bytes = b"text/event-stream", missing: int = 0) -> Iterator[str]:
    """A server that answers one request; `missing`: how many bytes it announces and does not send."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked = b""
                while b"\r\n\r\n" not in asked or b'"messages"' not in asked:
                    asked += connection.recv(65536)
                head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\nconnection: close\r\n" % kind
                if framing == "chunked":
                    end = b"" if missing else b"0\r\n\r\n"
                    framed = b"%x\r\n%b\r\n%b" % (len(body), body, end)
                    connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + framed)
                elif framing == "with a length":
                    connection.sendall(head + b"content-length: %d\r\n\r\n" % (len(body) + missing) + body)
                else:
                    connection.sendall(head + b"\r\n" + body)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{PATHS[0]}"
        thread.join()


def by_httpx(url: str) -> bytes:
    with httpx.stream("POST", url, json=CHAT) as reply:
        return b"".join(reply.iter_bytes())


def by_requests(url: str) -> bytes:
    with requests.post(url, json=CHAT, stream=True, timeout=300) as reply:
        return b"".join(reply.iter_content(7))


def by_urllib(url: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(CHAT).encode()), timeout=300) as reply:
        return b"".join(reply)


def by_requests_at_once(url: str) -> bytes:
    return requests.post(url, json=CHAT, timeout=300).content


def by_urllib3(url: str) -> bytes:
    return urllib3.PoolManager(retries=False).request("POST", url, json=CHAT).data


def by_urllib3_later(url: str) -> bytes:
    with urllib3.PoolManager(retries=False).request("POST", url, json=CHAT, preload_content=False) as reply:
        return b"".join(iter(lambda: reply.read(7), b""))


def by_urllib_at_once(url: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(CHAT).encode()), timeout=300) as reply:
        body: bytes = reply.read()
        return body


def by_aiohttp(url: str) -> bytes:
    async def asked() -> bytes:
        async with aiohttp.ClientSession() as session, session.post(url, json=CHAT) as reply:
            return await reply.read()

    return asyncio.run(asked())


@pytest.mark.parametrize("ask", [by_httpx, by_requests, by_urllib, by_aiohttp], ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("framing", ["chunked", "with a length", "until it closes"])
@pytest.mark.parametrize(("body", "expected"), [(SAID + DONE, []), (SAID, [BY_SERVER])], ids=["done", "no mark"])
def test_the_recording_says_how_a_stream_ended(
    tmp_path: Path, ask: Any, framing: str, body: bytes, expected: list[str]
) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording, answering(body, framing) as url:
        assert ask(url) == body
    assert (recording.turns, recording.errors, recording.lost) == (1, 0, 0)
    trace = read(tmp_path / "run.jsonl")
    assert [one.text for one in responses(trace)] == ["on time"]
    assert [note.data["error"] for note in notes(trace)] == expected


WHOLE = json.dumps({"choices": [{"index": 0, "message": {"content": "on time"}, "finish_reason": "stop"}]}).encode()


RAISING = [
    by_httpx, by_aiohttp, by_requests, by_requests_at_once, by_urllib3, by_urllib3_later, by_urllib_at_once,
]  # fmt: skip


@pytest.mark.parametrize("missing", [0, 9], ids=["whole", "short"])
@pytest.mark.parametrize("framing", ["chunked", "with a length"])
@pytest.mark.parametrize("ask", RAISING, ids=lambda ask: ask.__name__)
def test_a_reply_that_is_shorter_than_announced_is_no_whole_turn(
    tmp_path: Path, ask: Any, framing: str, missing: int
) -> None:
    """The client gets an error, so the answer never reached the agent, although all of its JSON has come."""
    with (
        bylaw.record(tmp_path / "run.jsonl"),
        answering(WHOLE, framing, b"application/json", missing) as url,
        pytest.raises(Exception, match=r".") if missing else nullcontext(),  # each library has its own
    ):
        assert ask(url) == WHOLE
    trace = read(tmp_path / "run.jsonl")
    assert [one.stop_reason for one in responses(trace)] in ([[], [None]] if missing else [["stop"]])
    assert len(notes(trace)) == (1 if missing else 0)


def test_a_short_reply_that_a_library_reads_without_an_exception_is_no_whole_turn(tmp_path: Path) -> None:
    body = WHOLE + b"\n"
    with bylaw.record(tmp_path / "run.jsonl"), answering(body, "with a length", b"application/json", 9) as url:
        assert by_urllib(url) == body
    trace = read(tmp_path / "run.jsonl")
    assert [note.data["error"] for note in notes(trace)] == ["the connection was broken off"]


@pytest.mark.parametrize("length", [str(len(WHOLE)), f"00{len(WHOLE)}", str(len(WHOLE) + 1), "9" * 5000])
def test_the_length_that_was_announced_says_whether_a_reply_is_whole(tmp_path: Path, length: str) -> None:
    recording = Recording(str(tmp_path / "run.jsonl"))
    exchange = recording.listen(Exchange(_request(PATHS[0])))
    exchange.head(200, {"content-type": "application/json", "content-length": length})
    exchange.chunk(WHOLE)
    exchange.end()
    recording.close()
    expected = [] if length.lstrip("0") == str(len(WHOLE)) else ["the connection was broken off"]
    assert [note.data["error"] for note in notes(read(tmp_path / "run.jsonl"))] == expected


@pytest.mark.parametrize(("ends", "error"), [(True, BY_SERVER), (False, BY_AGENT)])
@pytest.mark.parametrize("path", PATHS)
def test_who_ended_a_stream_without_a_mark(tmp_path: Path, path: str, ends: bool, error: str) -> None:
    begun = {
        PATHS[0]: SAID,
        PATHS[1]: b'data: {"type": "message_start", "message": {"role": "assistant"}}\n\n',
        PATHS[2]: b'data: {"type": "response.created", "response": {"status": "in_progress", "output": []}}\n\n',
    }[path]
    recording = Recording(str(tmp_path / "run.jsonl"))
    exchange = recording.listen(Exchange(_request(path)))
    exchange.head(200, STREAM)
    exchange.chunk(begun)
    if ends:
        exchange.body_end()
    exchange.end()
    recording.close()
    assert [note.data["error"] for note in notes(read(tmp_path / "run.jsonl"))] == [error]


@pytest.mark.parametrize(("cut_after", "error"), [(None, BY_SERVER), (len(SAID), "the connection was broken off")])
def test_a_reply_that_was_buffered_has_ended(tmp_path: Path, cut_after: int | None, error: str) -> None:
    recording = Recording(str(tmp_path / "run.jsonl"))
    inner = Exchange(_request(PATHS[0]))
    inner.cut_after = cut_after
    exchange = recording.listen(inner)
    exchange.answer(Incoming(200, STREAM, SAID))
    exchange.end()
    recording.close()
    assert [note.data["error"] for note in notes(read(tmp_path / "run.jsonl"))] == [error]
