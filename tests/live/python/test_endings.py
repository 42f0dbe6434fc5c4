"""Agents that leave threads and tasks behind, or end their process: Bylaw goes on, each run keeps its own faults."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from typing import Any

import pytest

import bylaw
from bylaw.contract.faults import Injection
from tests.live.python.support import ask, started, tool_fault


@bylaw.tool(name="counted")
def counted() -> str:
    return "fine"


@bylaw.tool(name="awaited")
async def awaited() -> str:
    await asyncio.sleep(0)
    return "fine"


def in_plain_thread(prompt: str) -> str:
    said: list[str] = []

    def work() -> None:
        time.sleep(0.01)
        try:
            said.append(counted())
        except RuntimeError:
            said.append("failed")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return said[0]


def test_a_plain_thread_belongs_to_the_run_that_started_it() -> None:
    async def at_once() -> list[str | None]:
        async with started(in_plain_thread, concurrency=4) as live:
            faults = [(tool_fault("error", tool="counted"),), (), (tool_fault("error", tool="counted"),), ()]
            runs = [live.run("go", Injection(faults=one, run=f"run {at}")) for at, one in enumerate(faults)]
            return [run.answer for run in await asyncio.gather(*runs)]

    assert asyncio.run(at_once()) == ["failed", "fine", "failed", "fine"]


def test_a_worker_thread_serves_later_runs_too() -> None:
    jobs: Any = __import__("queue").Queue()
    workers: list[threading.Thread] = []

    def serve() -> None:
        while (job := jobs.get()) is not None:
            try:
                job.append(counted())
            except RuntimeError:
                job.append("failed")

    def agent(prompt: str) -> str:
        if not workers:
            workers.append(threading.Thread(target=serve, daemon=True))
            workers[0].start()
        job: list[str] = []
        jobs.put(job)
        while not job:
            time.sleep(0.001)
        return job[0]

    async def one_by_one() -> list[str | None]:
        async with started(agent) as live:
            calm = await live.run("go", Injection(run="first"))
            fault = tool_fault("error", tool="counted")
            return [calm.answer, (await live.run("go", Injection(faults=(fault,), run="second"))).answer]

    try:
        assert asyncio.run(one_by_one()) == ["fine", "failed"]
    finally:
        jobs.put(None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("in_thread", [False, True])
def test_an_agent_that_ends_its_process_has_crashed_and_bylaw_goes_on(in_thread: bool) -> None:
    def agent(prompt: str) -> str:
        if not in_thread:
            os._exit(3)
        thread = threading.Thread(target=os._exit, args=(3,))
        thread.start()
        thread.join()
        return "fine"

    run = ask(agent)
    assert run.failure is not None and run.failure.kind == "crash" and "os._exit(3)" in run.failure.reason


def test_a_process_that_an_agent_forked_can_end() -> None:
    def agent(prompt: str) -> str:
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    assert ask(agent).answer == "7"


def test_a_task_that_outlives_its_run_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def goes_on() -> None:
        while True:
            await asyncio.sleep(0.001)
            await awaited()

    async def agent(prompt: str) -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.create_task(goes_on()))
        await asyncio.sleep(60)
        return "late"

    async def twice() -> None:
        async with started(agent, timeout_ms=30) as live:
            for number in range(2):
                run = await live.run("go", Injection(run=f"run {number}"))
                assert run.failure is not None and run.failure.kind == "timeout"
            await asyncio.sleep(0.05)
            gc.collect()
            await asyncio.sleep(0.01)

    with caplog.at_level(logging.ERROR):
        asyncio.run(twice())
    assert caplog.text == ""
