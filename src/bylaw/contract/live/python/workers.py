"""Threads that agent code runs in, so that nothing it does can hold up Bylaw's own loop, nor outlive its timeout.

A function runs in a thread of its own, which is given up when its time is over. A coroutine runs on a loop that all
runs of the agent share, since clients that agents keep belong to a loop; when that loop no longer answers, the next run
gets a new one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from bylaw.wire.current import LiveRun, aside, inside

GRACE = 0.5
"""seconds that a cancelled agent has to clean up"""


class Outcome(Struct, frozen=True):
    value: Any
    error: BaseException | None
    latency_ms: float


class Workers:
    """Of one agent."""

    def __init__(self) -> None:
        self._loop: LoopThread | None = None
        self._given_up: list[threading.Thread] = []

    @property
    def has_abandoned(self) -> bool:
        """Whether agent code that was given up is still running."""
        return any(thread.is_alive() for thread in self._given_up)

    async def function(self, run: LiveRun, function: Callable[[], Any], seconds: float) -> Outcome | None:
        """What the function returned or raised; None where its time was over."""
        done: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        thread = threading.Thread(target=_in_context(run, lambda: _timed(function, done)), daemon=True, name="agent")
        thread.start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(done), seconds)
        except TimeoutError:
            self._given_up.append(thread)
            return None
        except asyncio.CancelledError:
            self._given_up.append(thread)
            raise
        finally:
            run.end()

    async def coroutine(self, run: LiveRun | None, function: Callable[[], Any], seconds: float) -> Outcome | None:
        """The same for what has to be awaited. Without a run, nothing it does is looked at."""
        loop = self._loop = self._loop or LoopThread()
        done: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        task = loop.begin(run, function, done)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(done), seconds)
        except TimeoutError:
            await self._cancel(loop, task)
            return None
        except asyncio.CancelledError:
            await self._cancel(loop, task)
            raise
        finally:
            if run is not None:
                run.end()

    async def _cancel(self, loop: LoopThread, task: Callable[[], None]) -> None:
        if not await loop.cancelled(task):
            self._given_up.append(loop.thread)
            self._loop = None

    async def close(self) -> None:
        """Code that was given up and is about to end is let to."""
        until = time.monotonic() + GRACE
        while self.has_abandoned and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self._loop is not None:
            self._loop.close()
            self._loop = None


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self.thread = threading.Thread(target=self._serve, daemon=True, name="agent-loop")
        self.thread.start()

    def begin(
        self, run: LiveRun | None, function: Callable[[], Any], done: concurrent.futures.Future[Outcome]
    ) -> Callable[[], None]:
        """Starts the coroutine; what is returned cancels it."""
        tasks: list[asyncio.Task[None]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(_awaited(function, done)))

        context = contextvars.copy_context()
        self._loop.call_soon_threadsafe(_in_context(run, start, context), context=context)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        return cancel

    async def cancelled(self, cancel: Callable[[], None]) -> bool:
        """Cancels, and waits for the loop to get round to it; False where it does not."""
        answered: concurrent.futures.Future[None] = concurrent.futures.Future()

        def ping() -> None:
            cancel()
            self._loop.call_soon(self._loop.call_soon, answered.set_result, None)

        self._loop.call_soon_threadsafe(ping)
        try:
            await asyncio.wait_for(asyncio.wrap_future(answered), GRACE)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join(GRACE)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):  # a task of the agent's raised it: not ours to obey
                continue
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def _in_context(
    run: LiveRun | None, function: Callable[[], None], context: contextvars.Context | None = None
) -> Callable[[], None]:
    """The function, to be called inside the run; with a context given, to be called in it already."""

    def call() -> None:
        with aside() if run is None else inside(run):
            function()

    if context is not None:
        return call
    copied = contextvars.copy_context()
    return lambda: copied.run(call)


def _timed(function: Callable[[], Any], done: concurrent.futures.Future[Outcome]) -> None:
    began = time.perf_counter()
    value: Any = None
    error: BaseException | None = None
    try:
        value = function()
        if inspect.isawaitable(value):
            value = asyncio.run(_wait_for(value))
    except BaseException as raised:  # also SystemExit: an agent that exits has crashed, and Bylaw goes on
        error = raised
    _tell(done, Outcome(value, error, (time.perf_counter() - began) * 1000))


def _tell(done: concurrent.futures.Future[Outcome], outcome: Outcome) -> None:
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # the run was given up meanwhile
        done.set_result(outcome)


async def _wait_for(value: Any) -> Any:
    return await value


async def _awaited(function: Callable[[], Any], done: concurrent.futures.Future[Outcome]) -> None:
    began = time.perf_counter()
    value: Any = None
    error: BaseException | None = None
    try:
        value = function()
        if inspect.isawaitable(value):
            value = await value
    except BaseException as raised:
        error = raised
    _tell(done, Outcome(value, error, (time.perf_counter() - began) * 1000))
