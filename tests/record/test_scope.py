"""Which recording a call belongs to, and that closing a recording restores everything."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
import urllib3.connectionpool

import bylaw
from tests.record.model_clients import ask, ask_async, read, responses
from tests.record.server import TEXT, Server

PLACES: list[tuple[Any, str]] = [
    (httpx2.HTTPTransport, "handle_request"),
    (httpx2.AsyncHTTPTransport, "handle_async_request"),
    (http.client.HTTPConnection, "request"),
    (urllib3.connectionpool.HTTPConnectionPool, "_make_request"),
    (threading.Thread, "start"),
    (ThreadPoolExecutor, "submit"),
]


def _there() -> list[Any]:
    return [vars(owner)[name] for owner, name in PLACES]


def prompts(path: Path) -> dict[str, list[str]]:
    """The prompts, by session."""
    asked: dict[str, list[str]] = {}
    for response in responses(read(path)):
        assert response.request is not None and response.request.messages is not None
        asked.setdefault(response.origin.session, []).append(response.request.messages[-1]["content"])
    return {session: sorted(texts) for session, texts in asked.items()}


def test_patches_are_undone(tmp_path: Path) -> None:
    before = _there()
    with bylaw.record(tmp_path / "a.jsonl"):
        during = _there()
        with bylaw.record(tmp_path / "b.jsonl"):
            pass
        assert _there() == during
    assert all(was is not now for was, now in zip(before, during, strict=True))
    assert _there() == before
    with pytest.raises(ZeroDivisionError), bylaw.record(tmp_path / "a.jsonl"):
        print(1 / 0)
    assert _there() == before


def test_nothing_is_recorded_outside_a_recording(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl"):
        pass
    ask(server.url, "openai", "after")
    assert prompts(tmp_path / "run.jsonl") == {}


def test_concurrent_conversations_in_tasks_are_kept_apart(tmp_path: Path, server: Server) -> None:
    """A server that handles many conversations: each handler names its own."""
    path = tmp_path / "traffic.jsonl"

    async def handle(conversation: str) -> None:
        for number in range(2):
            async with bylaw.record(path, session=conversation):
                await ask_async(server.url, "openai", f"{conversation} {number}")

    async def serve() -> None:
        await asyncio.gather(*(handle(f"c{number}") for number in range(5)))

    asyncio.run(serve())
    assert prompts(path) == {f"c{number}": [f"c{number} 0", f"c{number} 1"] for number in range(5)}
    assert read(path).complete


def test_concurrent_conversations_in_threads_are_kept_apart(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "traffic.jsonl"

    @bylaw.record(path)
    def handle(name: str) -> None:
        inner = threading.Thread(target=ask, args=(server.url, "anthropic", f"{name} in a thread"))
        inner.start()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda number: ask(server.url, "openai", f"{name} in a pool {number}"), range(2)))
        inner.join()

    threads = [threading.Thread(target=handle, args=(f"c{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reported = sorted(prompts(path).values())
    assert reported == [[f"c{n} in a pool 0", f"c{n} in a pool 1", f"c{n} in a thread"] for n in range(3)]


def test_threads_of_a_pool_belong_to_who_hands_them_work(tmp_path: Path, server: Server) -> None:
    with ThreadPoolExecutor(1) as pool:
        for name in ("a", "b"):
            with bylaw.record(tmp_path / f"{name}.jsonl", session=name):
                pool.submit(ask, server.url, "openai", name).result()
    assert prompts(tmp_path / "a.jsonl") == {"a": ["a"]}
    assert prompts(tmp_path / "b.jsonl") == {"b": ["b"]}


def test_a_thread_that_was_started_before_belongs_to_the_outermost_recording(tmp_path: Path, server: Server) -> None:
    """It carries no recording: its calls belong to the only one, or to `unassigned` if there are several."""
    begin, done = threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        for number in range(2):
            begin.acquire()
            ask(server.url, "openai", f"stray {number}")
            done.release()

    thread = threading.Thread(target=work)
    thread.start()
    path = tmp_path / "run.jsonl"
    with bylaw.record(path, session="main"):
        begin.release()
        done.acquire()

    def other() -> None:
        with bylaw.record(path, session="other"):
            begin.release()
            done.acquire()

    with bylaw.record(tmp_path / "elsewhere.jsonl"):
        rival = threading.Thread(target=contextlib.nullcontext)
        rival.start()
        rival.join()
    open_elsewhere = threading.Event()
    leave = threading.Event()

    def hold() -> None:
        with bylaw.record(path, session="held"):
            open_elsewhere.set()
            leave.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    open_elsewhere.wait()
    other()
    leave.set()
    holder.join()
    thread.join()
    assert prompts(path) == {"main": ["stray 0"], "unassigned": ["stray 1"]}


def test_of_nested_recordings_to_one_file_only_the_innermost_writes(tmp_path: Path, server: Server) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "all.jsonl")
    with bylaw.record(tmp_path / "all.jsonl", session="outer"):
        ask(server.url, "openai", "one")
        with bylaw.record(tmp_path / "link.jsonl", session="inner"):
            ask(server.url, "openai", "two")
    assert prompts(tmp_path / "all.jsonl") == {"outer": ["one"], "inner": ["two"]}


def test_recordings_to_two_files_both_write(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "all.jsonl", session="all"):
        with bylaw.record(tmp_path / "part.jsonl", session="part"):
            ask(server.url, "anthropic", "one", streamed=True)
        ask(server.url, "openai", "two")
    assert prompts(tmp_path / "all.jsonl") == {"all": ["one", "two"]}
    assert prompts(tmp_path / "part.jsonl") == {"part": ["one"]}


def test_a_decorated_function_records_each_call(tmp_path: Path, server: Server) -> None:
    recorded = bylaw.record(tmp_path / "run.jsonl")

    @recorded
    def plain(prompt: str) -> str:
        """Asks."""
        return ask(server.url, "openai", prompt)

    @recorded
    async def later(prompt: str) -> str:
        return await ask_async(server.url, "openai", prompt)

    assert plain.__doc__ == "Asks."
    assert [plain("a"), plain("b"), asyncio.run(later("c"))] == [TEXT] * 3
    assert sorted(prompts(tmp_path / "run.jsonl").values()) == [["a"], ["b"], ["c"]]
    with pytest.raises(TypeError, match="`stream` is a generator"):

        @recorded
        def stream() -> Any:
            yield 1


def test_a_recording_cannot_begin_twice(tmp_path: Path) -> None:
    recording = bylaw.record(tmp_path / "run.jsonl")
    with recording, pytest.raises(RuntimeError, match="has begun already"), recording:
        pass
    with recording:  # but once more afterwards
        pass
    assert read(tmp_path / "run.jsonl").complete


def test_a_recording_can_be_ended_by_another_task(tmp_path: Path, server: Server) -> None:
    """As if a web framework opened it at start-up: the tasks of its handlers are not children of that task."""

    async def main() -> None:
        started, stop = asyncio.Event(), asyncio.Event()

        async def lifespan() -> None:
            async with bylaw.record(tmp_path / "run.jsonl", session="life"):
                started.set()
                await stop.wait()

        life = asyncio.create_task(lifespan())
        await started.wait()
        await ask_async(server.url, "openai", "hello")
        stop.set()
        await life

    asyncio.run(main())
    assert prompts(tmp_path / "run.jsonl") == {"life": ["hello"]}
