"""Every client in every way it can be used: the agent notices nothing, and the file holds the turn."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anthropic
import httpx
import msgspec
import openai
import pytest
import requests

import bylaw
from tests.record.model_clients import (
    MODEL,
    PROVIDERS,
    anthropic_client,
    ask,
    ask_async,
    asked_in_a_loop,
    notes,
    openai_client,
    read,
    responses,
    results,
)
from tests.record.server import TEXT, Server

ASKING: list[Callable[..., str]] = [ask, asked_in_a_loop]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("asking", ASKING, ids=["sync", "async"])
def test_a_call_to_a_model_is_recorded_as_a_turn(
    tmp_path: Path, server: Server, provider: str, streamed: bool, asking: Callable[..., str]
) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        assert asking(server.url, provider, "Where is it?", streamed=streamed) == TEXT
        assert recording.turns == 1
    trace = read(tmp_path / "run.jsonl")
    (response,) = responses(trace)
    assert trace.complete
    assert (response.text, response.model) == (TEXT, MODEL)
    assert response.stop_reason in ("stop", "completed", "end_turn")
    assert response.usage is not None and response.usage.output_tokens == len(TEXT.split())
    assert response.latency_ms is not None and response.latency_ms > 0
    assert response.request is not None and response.request.messages is not None
    assert response.request.messages[-1] == {"role": "user", "content": "Where is it?"}
    assert response.origin.session == recording.session


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_calls_issued_together_are_a_group(tmp_path: Path, server: Server, provider: str, streamed: bool) -> None:
    with bylaw.record(tmp_path / "run.jsonl", redact=False):
        ask(server.url, provider, "use two tools", streamed=streamed)
    (response,) = responses(read(tmp_path / "run.jsonl"))
    assert [call.name for call in response.tool_calls] == ["find_order", "find_customer"]
    assert [call.arguments for call in response.tool_calls] == [{"order": "4711"}, {"mail": "jane@example.com"}]
    assert len({call.group for call in response.tool_calls}) == 1 and response.tool_calls[0].group is not None


def test_tool_results_are_recorded_once_with_their_calls(tmp_path: Path, server: Server) -> None:
    messages: list[Any] = [{"role": "user", "content": "use two tools"}]
    with bylaw.record(tmp_path / "run.jsonl", agent="clerk"), openai_client(server.url) as client:
        said = client.chat.completions.create(model=MODEL, messages=messages).choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"result {number}"}
            for number, call in enumerate(said.tool_calls or ())
        ]
        for _ in range(2):  # asked again, the results are no news
            client.chat.completions.create(model=MODEL, messages=messages)
    trace = read(tmp_path / "run.jsonl")
    reported = results(trace)
    assert [(one.name, one.content, one.turn) for one in reported] == [
        ("find_order", "result 0", 0),
        ("find_customer", "result 1", 0),
    ]
    assert all(one.call is not None for one in reported)
    assert {event.origin.agent for event in trace.events if event.kind != "session_end"} == {"clerk"}
    assert len(responses(trace)) == 3


def test_tool_results_of_the_other_providers_are_recorded(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl", session="one"), anthropic_client(server.url) as client:
        asked: list[Any] = [{"role": "user", "content": "use the tool"}]
        said = client.messages.create(model=MODEL, max_tokens=9, messages=asked)
        use = next(block for block in said.content if block.type == "tool_use")
        block = {"type": "tool_result", "tool_use_id": use.id, "content": "gone", "is_error": True}
        asked += [{"role": "assistant", "content": said.content}, {"role": "user", "content": [block]}]
        client.messages.create(model=MODEL, max_tokens=9, messages=asked)
    with bylaw.record(tmp_path / "run.jsonl", session="two"), openai_client(server.url) as other:
        first = other.responses.create(model=MODEL, input="use the tool")
        call = next(item for item in first.output if item.type == "function_call")
        output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "found"}]
        other.responses.create(model=MODEL, input=output, previous_response_id=first.id)
    reported = results(read(tmp_path / "run.jsonl"))
    assert [(one.name, one.content, one.is_error, one.origin.session) for one in reported] == [
        ("find_order", "gone", True, "one"),
        ("find_order", "found", None, "two"),
    ]


def test_ids_that_a_server_uses_again_are_new_calls(tmp_path: Path) -> None:
    """Some servers use the id `call_0` for the first call of every answer."""

    def answer(request: httpx.Request) -> httpx.Response:
        call = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return httpx.Response(200, json={"choices": [{"message": message, "finish_reason": "tool_calls"}]})

    asked: list[Any] = [{"role": "user", "content": "look"}]
    with bylaw.record(tmp_path / "run.jsonl"), httpx.Client(transport=httpx.MockTransport(answer)) as client:
        for number in range(3):
            body = {"model": "m", "messages": asked}
            said = client.post("http://any.invalid/v1/chat/completions", json=body).json()["choices"][0]["message"]
            asked += [said, {"role": "tool", "tool_call_id": "call_0", "content": f"seen {number}"}]
    reported = results(read(tmp_path / "run.jsonl"))
    assert [(one.content, one.turn) for one in reported] == [("seen 0", 0), ("seen 1", 1)]


def test_raw_and_streaming_responses_of_the_clients_are_recorded(tmp_path: Path, server: Server) -> None:
    asked: Any = [{"role": "user", "content": "Where is it?"}]
    with bylaw.record(tmp_path / "run.jsonl") as recording, openai_client(server.url) as client:
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=asked)
        assert raw.parse().choices[0].message.content == TEXT
        with client.chat.completions.with_streaming_response.create(model=MODEL, messages=asked) as response:
            assert TEXT in response.text()
        with client.chat.completions.stream(model=MODEL, messages=asked) as stream:
            assert stream.get_final_completion().choices[0].message.content == TEXT
        assert recording.turns == 3
    assert [one.text for one in responses(read(tmp_path / "run.jsonl"))] == [TEXT] * 3


def _body() -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "packed"}]}


def _by_httpx(url: str) -> Any:
    return httpx.post(url, json=_body()).json()


def _by_requests(url: str) -> Any:
    return requests.post(url, json=_body(), timeout=300).json()


def _by_urllib(url: str) -> Any:
    request = urllib.request.Request(url, msgspec.json.encode(_body()), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return _unpacked(reply.read())


def _by_http_client(url: str) -> Any:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=300)
    connection.request("POST", parts.path, msgspec.json.encode(_body()), {"content-type": "application/json"})
    read = _unpacked(connection.getresponse().read())
    connection.close()
    return read


def _by_aiohttp(url: str) -> Any:
    async def post() -> Any:
        async with aiohttp.ClientSession() as session, session.post(url, json=_body()) as reply:
            return await reply.json()

    import asyncio

    return asyncio.run(post())


def _unpacked(body: bytes) -> Any:
    import gzip

    return msgspec.json.decode(gzip.decompress(body))


@pytest.mark.parametrize("post", [_by_httpx, _by_requests, _by_urllib, _by_http_client, _by_aiohttp])
def test_plain_libraries_and_compressed_answers_are_recorded(
    tmp_path: Path, server: Server, post: Callable[[str], Any]
) -> None:
    """Any address works: a call is recognised by its path and its body."""
    with bylaw.record(tmp_path / "run.jsonl"):
        reply = post(f"{server.url}/gateway/eu/v1/chat/completions")
        assert reply["choices"][0]["message"]["content"] == TEXT
    assert [one.text for one in responses(read(tmp_path / "run.jsonl"))] == [TEXT]


def test_streams_of_plain_libraries(tmp_path: Path, server: Server) -> None:
    body = {**_body(), "messages": [{"role": "user", "content": "hello"}], "stream": True}
    url = f"{server.url}/v1/chat/completions"
    with bylaw.record(tmp_path / "run.jsonl"):
        with requests.post(url, json=body, stream=True, timeout=300) as reply:
            assert b"[DONE]" in b"".join(reply.iter_content(None))
        with httpx.stream("POST", url, json=body) as other:
            assert "[DONE]" in "".join(other.iter_text())

        async def by_aiohttp() -> bytes:
            async with aiohttp.ClientSession() as session, session.post(url, json=body) as third:
                return await third.read()

        import asyncio

        assert b"[DONE]" in asyncio.run(by_aiohttp())
    assert [one.text for one in responses(read(tmp_path / "run.jsonl"))] == [TEXT] * 3


def test_other_requests_are_not_recorded(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        assert httpx.get(f"{server.url}/v1/models").status_code == 200
        assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "x"}).status_code == 404
        assert httpx.post(f"{server.url}/v1/chat/completions", content=b"no json").status_code == 404
        assert recording.turns == recording.errors == 0
    assert responses(read(tmp_path / "run.jsonl")) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_is_passed_on_event_by_event(tmp_path: Path, server: Server, provider: str) -> None:
    """The server sends the second half only after the client has received an event of the first."""

    def read_all(stream: Any) -> None:
        for _ in stream:
            server.goes_on.set()

    asked: Any = [{"role": "user", "content": "wait"}]
    with bylaw.record(tmp_path / "run.jsonl"):
        if provider == "anthropic":
            with anthropic_client(server.url) as client:
                read_all(client.messages.create(model=MODEL, max_tokens=9, messages=asked, stream=True))
        else:
            with openai_client(server.url) as other:
                if provider == "openai":
                    read_all(other.chat.completions.create(model=MODEL, messages=asked, stream=True))
                else:
                    read_all(other.responses.create(model=MODEL, input="wait", stream=True))
    assert [one.text for one in responses(read(tmp_path / "run.jsonl"))] == [TEXT]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_its_reader_stops_reading_is_incomplete(tmp_path: Path, server: Server, provider: str) -> None:
    asked: Any = [{"role": "user", "content": "Where is it?"}]
    with bylaw.record(tmp_path / "run.jsonl"):
        if provider == "anthropic":
            with anthropic_client(server.url) as client:
                stream: Any = client.messages.create(model=MODEL, max_tokens=9, messages=asked, stream=True)
                _leave(stream)
        else:
            with openai_client(server.url) as other:
                if provider == "openai":
                    stream = other.chat.completions.create(model=MODEL, messages=asked, stream=True)
                else:
                    stream = other.responses.create(model=MODEL, input="Where is it?", stream=True)
                _leave(stream)
    trace = read(tmp_path / "run.jsonl")
    (response,) = responses(trace)
    assert response.text and TEXT.startswith(response.text) and response.text != TEXT
    assert response.stop_reason is None
    assert [(note.label, note.data["error"]) for note in notes(trace)] == [
        ("incomplete_response", "the agent stopped reading")
    ]


def _leave(stream: Any) -> None:
    with stream:
        for number, _ in enumerate(stream):
            if number == 7:
                break


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_the_server_breaks_off_is_incomplete(tmp_path: Path, server: Server, provider: str) -> None:
    with bylaw.record(tmp_path / "run.jsonl"), pytest.raises(Exception, match=r"(?i)incomplete|closed|reset|error"):
        ask(server.url, provider, "cut it", streamed=True)
    trace = read(tmp_path / "run.jsonl")
    (note,) = notes(trace)
    assert note.label == "incomplete_response" and "RemoteProtocolError" in note.data["error"]
    assert len(responses(trace)) == 1


def test_a_stream_that_outlasts_the_recording_is_incomplete(tmp_path: Path, server: Server) -> None:
    asked: Any = [{"role": "user", "content": "Where is it?"}]
    with openai_client(server.url) as client:
        with bylaw.record(tmp_path / "run.jsonl"):
            stream = client.chat.completions.create(model=MODEL, messages=asked, stream=True)
            first = next(iter(stream))
        assert first and "".join(part.delta.content or "" for one in stream for part in one.choices) == TEXT
    trace = read(tmp_path / "run.jsonl")
    assert [note.data["error"] for note in notes(trace)] == ["the recording ended first"]
    assert len(responses(trace)) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_error_status_is_not_an_answer(tmp_path: Path, server: Server, provider: str) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError)):
            ask(server.url, provider, "status 401")
        assert (recording.turns, recording.errors) == (0, 1)
    trace = read(tmp_path / "run.jsonl")
    (note,) = notes(trace)
    assert note.label == "model_error"
    assert (note.data["status"], note.data["attempt"], note.data["model"]) == (401, 1, MODEL)
    assert "the key [redacted: api key] is wrong" in note.data["error"]
    assert responses(trace) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_failed_attempts_are_recorded_and_one_turn_is_counted(tmp_path: Path, server: Server, provider: str) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        assert ask(server.url, provider, "status 429 for 2", retries=3) == TEXT
        assert (recording.turns, recording.errors) == (1, 2)
    trace = read(tmp_path / "run.jsonl")
    assert [(note.data["status"], note.data["attempt"]) for note in notes(trace)] == [(429, 1), (429, 2)]
    assert len(responses(trace)) == 1


def test_no_connection_and_no_answer_in_time_are_model_errors(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl") as recording:
        with pytest.raises(openai.APIConnectionError):
            ask("http://127.0.0.1:9", "openai", "hello")
        with pytest.raises(openai.APITimeoutError):
            ask(server.url, "openai", "hang", timeout=0.2)
        assert recording.errors == 2
    errors = [note.data["error"] for note in notes(read(tmp_path / "run.jsonl"))]
    assert errors[0].startswith("ConnectError: ") and errors[1].startswith("ReadTimeout: ")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_cancelled_task_is_a_model_error(tmp_path: Path, server: Server, provider: str) -> None:
    import asyncio

    async def cancelled() -> None:
        async with bylaw.record(tmp_path / "run.jsonl"):
            task = asyncio.create_task(ask_async(server.url, provider, "hang"))
            while not server.asked:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    (note,) = notes(read(tmp_path / "run.jsonl"))
    assert note.label == "model_error"
