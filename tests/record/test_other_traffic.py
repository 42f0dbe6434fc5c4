"""A recording does not change requests that do not ask a model, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import http.client
import importlib
import io
import json
import logging
import socket
import sys
import types
import urllib.request
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3

import bylaw
from tests.record.model_clients import MODEL, notes, read, responses
from tests.record.other_server import PIECES, OtherServer, serving_others
from tests.record.server import TEXT, Server

ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "Where is it?"}]}
CHAT = "/v1/chat/completions"


@pytest.fixture
def others() -> Iterator[OtherServer]:
    with serving_others() as started:
        yield started


async def _form(session: aiohttp.ClientSession, url: str) -> Any:
    form = aiohttp.FormData()
    form.add_field("a", io.BytesIO(b"abc"), filename="x")
    async with session.post(f"{url}/echo", data=form) as reply:
        return len((await reply.json())["body"]) > 6


async def _pieces(session: aiohttp.ClientSession, url: str) -> Any:
    async def body() -> AsyncIterator[bytes]:
        yield b"abc"

    async with session.post(f"{url}/echo", data=body()) as reply:
        return await reply.json()


async def _redirect(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(f"{url}/moved") as reply:
        return reply.url.path, len(reply.history)


async def _redirect_like_a_model(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(f"{url}/moved/messages", json={"text": "to a colleague"}) as reply:
        return reply.url.path, len(reply.history), reply.headers["content-length"]


async def _head(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.head(f"{url}/echo") as reply:
        return reply.headers["content-length"]


async def _socket(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.ws_connect(f"{url}/socket") as talk:
        await talk.send_str("x")
        return (await talk.receive(timeout=300)).data


async def _still_packed(_session: aiohttp.ClientSession, url: str) -> Any:
    async with aiohttp.ClientSession(auto_decompress=False) as session, session.get(f"{url}/packed") as reply:
        return reply.headers.get("content-encoding"), await reply.read()


async def _head_first(session: aiohttp.ClientSession, url: str) -> Any:
    patience = aiohttp.ClientTimeout(total=300)
    async with session.get(f"{url}/begun", timeout=patience) as reply, session.get(f"{url}/go"):
        return await reply.read(), reply.content_length


async def _refused(session: aiohttp.ClientSession, _url: str) -> Any:
    with pytest.raises(aiohttp.InvalidURL) as refused:
        await session.get("http://[")
    return type(refused.value)


IN_A_LOOP = [
    _form,
    _pieces,
    _redirect,
    _redirect_like_a_model,
    _head,
    _socket,
    _still_packed,
    _head_first,
    _refused,
]


@pytest.mark.parametrize("asking", IN_A_LOOP, ids=lambda asking: asking.__name__[1:])
def test_other_traffic_of_aiohttp_is_passed_on_and_not_recorded(
    tmp_path: Path, others: OtherServer, asking: Callable[..., Coroutine[Any, Any, Any]]
) -> None:
    async def asked() -> Any:
        others.goes_on.clear()
        async with aiohttp.ClientSession() as session:
            return await asking(session, others.url)

    plain = asyncio.run(asked())
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        assert asyncio.run(asked()) == plain
    assert (recording.turns, recording.errors, recording.lost) == (0, 0, 0)


def _through_http_client(url: str, body: Any, path: str = "/echo") -> Any:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    connection.request("POST", path, body=body)
    reply = connection.getresponse().read()
    connection.close()
    return reply


SYNC: dict[str, Callable[[str], Any]] = {
    "http.client text": lambda url: _through_http_client(url, "é"),
    "http.client text where a model may be": lambda url: _through_http_client(url, '"é"', CHAT),
    "http.client pieces": lambda url: _through_http_client(url, iter([b"a", b"b"])),
    "requests pieces": lambda url: requests.post(f"{url}/echo", data=iter([b"a", b"b"]), timeout=300).text,
    "httpx pieces": lambda url: httpx.post(f"{url}/echo", content=iter([b"a", b"b"])).text,
    "urllib": lambda url: urllib.request.urlopen(f"{url}/moved", timeout=300).url,
}


@pytest.mark.parametrize("asking", SYNC)
def test_clients_with_the_same_api_are_recorded(tmp_path: Path, others: OtherServer, asking: str) -> None:
    plain = SYNC[asking](others.url)
    with bylaw.record(tmp_path / "run.jsonl"):
        assert SYNC[asking](others.url) == plain


def test_an_upload_is_not_read_before_there_is_a_connection(tmp_path: Path) -> None:
    taken: list[bytes] = []

    def body() -> Iterator[bytes]:
        taken.append(b"a")
        yield b"a"

    with socket.socket() as unheard, bylaw.record(tmp_path / "run.jsonl"):
        unheard.bind(("127.0.0.1", 0))
        with pytest.raises(httpx.ConnectError):
            httpx.post(f"http://127.0.0.1:{unheard.getsockname()[1]}/upload", content=body())
    assert taken == []


def test_a_reply_comes_no_faster_than_it_is_read(tmp_path: Path, others: OtherServer) -> None:
    async def asked() -> tuple[int, int]:
        async with aiohttp.ClientSession() as session:
            body = {**ASKED, "max_tokens": 5}
            async with session.post(f"{others.url}/flood/messages", json=body) as reply:
                first = len(await reply.content.read(1))
                sent = -1
                while sent != others.sent:  # until it stands still
                    sent = others.sent
                    await asyncio.sleep(0.3)
                return sent, first + len(await reply.read())

    with bylaw.record(tmp_path / "run.jsonl"):
        sent, length = asyncio.run(asked())
    assert sent < PIECES
    assert length == PIECES * 100_000


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_httpx_on_a_loop_other_than_asyncio(tmp_path: Path, streamed: bool) -> None:
    answer = b'{"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}'

    async def pieces() -> AsyncIterator[bytes]:
        yield answer

    def reply(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=pieces() if streamed else answer)

    async def asked() -> Any:
        async with httpx.AsyncClient(transport=httpx.MockTransport(reply)) as client:
            return (await client.post(f"http://127.0.0.1{CHAT}", json=ASKED)).content

    with bylaw.record(tmp_path / "run.jsonl") as recording:
        with pytest.raises(StopIteration) as ended:
            asked().send(None)  # nothing here needs to wait, so any loop would see it end at once
        assert ended.value.value == answer
        assert recording.turns == 1


def test_an_answer_that_urllib3_has_decompressed_is_recorded(tmp_path: Path, server: Server) -> None:
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "packed"}]}
    with bylaw.record(tmp_path / "run.jsonl"), urllib3.PoolManager() as pool:
        pool.request("POST", server.url + CHAT, json=asked, headers={"accept-encoding": "gzip"})
    trace = read(tmp_path / "run.jsonl")
    assert [response.text for response in responses(trace)] == [TEXT]
    assert not notes(trace)


# What cannot be patched


def test_where_a_library_cannot_be_patched_nothing_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    before = http.client.HTTPConnection.request, list(sys.meta_path)
    with monkeypatch.context() as stubbed:
        stubbed.setitem(sys.modules, "httpx", types.ModuleType("httpx"))
        with pytest.raises(AttributeError), bylaw.record(tmp_path / "run.jsonl"):
            pass
        assert (http.client.HTTPConnection.request, list(sys.meta_path)) == before
    assert not read(tmp_path / "run.jsonl").complete
    with bylaw.record(tmp_path / "other.jsonl") as recording:
        httpx.post(server.url + CHAT, json=ASKED)
    assert recording.turns == 1


def test_another_recording_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        with monkeypatch.context() as stubbed:
            stubbed.setitem(sys.modules, "httpx", types.ModuleType("httpx"))
            with pytest.raises(AttributeError), bylaw.record(tmp_path / "other.jsonl"):
                pass
        httpx.post(server.url + CHAT, json=ASKED)
    assert recording.turns == 1


def test_an_import_does_not_fail_if_its_patch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "httpx.py").write_text("class HTTPTransport:\n    def handle_request(self): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with bylaw.record(tmp_path / "run.jsonl"), monkeypatch.context() as stubbed:
        stubbed.delitem(sys.modules, "httpx")
        stub = importlib.import_module("httpx")
        untouched = stub.HTTPTransport.handle_request
        importlib.reload(stub)
    assert not hasattr(untouched, "__wrapped__")
    (reported,) = [reported for reported in caplog.records if reported.name == "bylaw"]
    assert reported.levelno == logging.ERROR
    assert "`httpx` cannot be patched" in reported.getMessage()


# What nobody reads


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _posting(url: str) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    connection.request("POST", CHAT, body=json.dumps({**ASKED, "stream": True}))
    with closing(connection):
        yield connection


def test_a_reply_is_freed_as_soon_as_nobody_refers_to_it(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording, urllib3.PoolManager() as pool, _no_collector():
        reply = pool.request("POST", server.url + CHAT, json=ASKED, preload_content=False)
        alive = weakref.ref(reply)
        del reply
        assert alive() is None
        assert recording.turns + recording.errors == 1


def test_a_reply_of_http_client_that_nobody_reads_ends_its_exchange(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        with _posting(server.url) as connection:
            connection.getresponse().read(10)
        assert recording.turns + recording.errors == 1
        with _posting(server.url) as connection:
            connection.getresponse().close()
            assert recording.turns + recording.errors == 2


def test_what_is_read_into_a_buffer_is_heard(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl"), _posting(server.url) as connection:
        assert b"data: [DONE]\n" in list(io.BufferedReader(connection.getresponse()))  # type: ignore[type-var]
    assert [response.text for response in responses(read(tmp_path / "run.jsonl"))] == [TEXT]


@pytest.mark.parametrize("begun", [False, True], ids=["unread", "begun"])
def test_a_reply_of_httpx_that_nobody_reads_ends_its_exchange(tmp_path: Path, server: Server, begun: bool) -> None:
    def abandoned(client: httpx.Client) -> None:
        request = client.build_request("POST", server.url + CHAT, json={**ASKED, "stream": True})
        pieces = client.send(request, stream=True).iter_raw(1)
        if begun:
            next(pieces)

    with bylaw.record(tmp_path / "run.jsonl") as recording, httpx.Client() as client:
        abandoned(client)
        gc.collect()
        assert recording.turns + recording.errors == 1
