"""Threads that run agent code, so that it can neither block Bylaw's own loop nor outlive its timeout.

A function runs in a thread of its own, which is abandoned when its time is over. A coroutine runs on a loop that all
runs of the agent share, because clients that an agent keeps belong to a loop. If that loop no longer responds, the next
run gets a new one.

A reset before a run is code of the agent's owner too: a function, which gets a thread of its own, or a POST to a URL.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import http.client
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from bylaw.contract.agents.answers import MOST_ANSWER
from bylaw.contract.agents.python_target import import_path, load
from bylaw.contract.agents.replies import Chunks
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import AgentSpec, shown_url
from bylaw.wire.listeners import Run, RunOver, current_run, ignore_exchanges, run_context
from bylaw.wire.values import one_line

GRACE = 0.5
"""seconds that a cancelled agent has to clean up"""
_MOST_CHUNKS = 1_000_000


class Outcome(Struct, frozen=True):
    value: Any
    error: BaseException | None
    latency_ms: float


class Workers:
    """The threads of one agent."""

    def __init__(self) -> None:
        self._loop: LoopThread | None = None
        self._abandoned: list[threading.Thread] = []

    @property
    def has_abandoned(self) -> bool:
        """Whether abandoned agent code is still running."""
        return any(thread.is_alive() for thread in self._abandoned)

    async def function(self, run: Run, function: Callable[[], Any], seconds: float) -> Outcome | None:
        """The value or exception of the function; None after the timeout."""
        done: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        call = _in_context(run, lambda: _run_function(function, done))
        thread = threading.Thread(target=contextvars.copy_context().run, args=(call,), daemon=True, name="agent")
        thread.start()

        async def abandon() -> None:
            self._abandoned.append(thread)

        return await _wait(done, seconds, abandon, run)

    async def coroutine(self, run: Run | None, function: Callable[[], Any], seconds: float) -> Outcome | None:
        """The same for a function that returns an awaitable. Without a run it is not observed."""
        loop = self._loop = self._loop or LoopThread()
        done: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        task = loop.begin(run, function, done)

        async def cancel() -> None:
            if not await loop.cancel(task):
                self._abandoned.append(loop.thread)
                self._loop = None

        return await _wait(done, seconds, cancel, run)

    async def close(self) -> None:
        """Give abandoned code a moment to end."""
        until = time.monotonic() + GRACE
        while self.has_abandoned and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self._loop is not None:
            self._loop.close()
            self._loop = None


async def _wait(
    done: concurrent.futures.Future[Outcome], seconds: float, stop: Callable[[], Awaitable[None]], run: Run | None
) -> Outcome | None:
    """The outcome; None if the time is over. `stop` is called if it is not awaited to its end."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(done), seconds)
    except TimeoutError:
        await stop()
        return None
    except asyncio.CancelledError:
        await stop()
        raise
    finally:
        if run is not None:
            run.end()


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_report_unless_over)
        self._closing = False
        self.thread = threading.Thread(target=self._serve, daemon=True, name="agent-loop")
        self.thread.start()

    def begin(
        self, run: Run | None, function: Callable[[], Any], done: concurrent.futures.Future[Outcome]
    ) -> Callable[[], None]:
        """Start the coroutine; the returned function cancels it."""
        tasks: list[asyncio.Task[None]] = []

        async def work() -> None:
            with _outcome(done) as values:
                values.append(await _collect_value(function()))

        def start() -> None:
            tasks.append(self._loop.create_task(work()))

        context = contextvars.copy_context()
        self._loop.call_soon_threadsafe(_in_context(run, start), context=context)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        return cancel

    async def cancel(self, cancel: Callable[[], None]) -> bool:
        """Cancel, and wait until the loop has done it; False if it does not respond."""
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
            except (SystemExit, KeyboardInterrupt):  # raised by the agent, and must not end this thread
                continue
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def _report_unless_over(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Silences the warning about RunOver in tasks of the agent that outlive their run: no code awaits them."""
    if not isinstance(context.get("exception"), RunOver):
        loop.default_exception_handler(context)


def _in_context(run: Run | None, function: Callable[[], None]) -> Callable[[], None]:
    """The function, to be called inside the run, in a copy of the caller's context."""

    def call() -> None:
        with ignore_exchanges() if run is None else run_context(run):
            function()

    return call


def _run_function(function: Callable[[], Any], done: concurrent.futures.Future[Outcome]) -> None:
    with _outcome(done) as values:
        value = function()
        if inspect.isawaitable(value) or hasattr(value, "__aiter__") or hasattr(value, "stream_events"):
            values.append(asyncio.run(_collect_value(value)))
        else:
            values.append(_collect_chunks(value) if hasattr(value, "__next__") else value)


async def _collect_value(value: Any) -> Any:
    """The value, awaited, or all chunks of it where it is a stream."""
    if inspect.isawaitable(value):
        value = await value
    if hasattr(value, "stream_events"):  # of the OpenAI Agents SDK: the result is there at the end
        async for _ in value.stream_events():
            current_run()
        return value
    if hasattr(value, "__next__"):
        return _collect_chunks(value)
    if not hasattr(value, "__aiter__"):
        return value
    chunks = Chunks()
    try:
        async for chunk in value:
            _add_chunk(chunks, chunk)
    finally:
        if inspect.isasyncgen(value):
            await value.aclose()
    return chunks


def _collect_chunks(value: Iterator[Any]) -> Chunks:
    chunks = Chunks()
    try:
        while True:
            try:
                chunk = next(value)
            except StopIteration as end:
                chunks.returned = end.value
                break
            _add_chunk(chunks, chunk)
    finally:
        if inspect.isgenerator(value):
            value.close()
    return chunks


def _add_chunk(chunks: Chunks, chunk: Any) -> None:
    current_run()  # raises in a run that is over, so that an endless stream ends
    chunks.append(chunk)
    chunks.size += len(chunk) if isinstance(chunk, str | bytes) else 0
    if chunks.size > MOST_ANSWER:
        raise OverflowError(f"the agent yielded more than {MOST_ANSWER // 1024**2} MB")
    if len(chunks) > _MOST_CHUNKS:
        raise OverflowError(f"the agent yielded more than {_MOST_CHUNKS:,} chunks")


@contextlib.contextmanager
def _outcome(done: concurrent.futures.Future[Outcome]) -> Iterator[list[Any]]:
    """Sets the outcome of this block, which appends its value to the list."""
    began = time.perf_counter()
    values: list[Any] = []
    error: BaseException | None = None
    try:
        yield values
    except BaseException as raised:  # also SystemExit: an agent that exits has crashed, and Bylaw continues
        error = raised
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # the run was abandoned meanwhile
        done.set_result(Outcome(values[0] if values else None, error, (time.perf_counter() - began) * 1000))


# Resets


RESET_SECONDS = 30.0


async def reset_agent(spec: AgentSpec, base: Path) -> None:
    """Reset an agent that runs in another process. Raises AgentUnreachable."""
    if spec.reset_function:
        with import_path(base):
            await reset_by_function(load(spec.reset_function, base), spec.reset_function)
    if spec.reset_endpoint:
        await reset_by_request(spec.reset_endpoint)


async def reset_by_function(function: Callable[[], Any], name: str) -> None:
    """Call it in a thread, which is abandoned when the time is over. A coroutine function is awaited here."""
    try:
        async with asyncio.timeout(RESET_SECONDS):
            with ignore_exchanges():
                value = function() if inspect.iscoroutinefunction(function) else await _in_thread(function)
                if inspect.isawaitable(value):
                    await value
    except TimeoutError:
        raise AgentUnreachable(f"the reset function `{name}` did not return within {RESET_SECONDS:g} s") from None
    except Exception as error:  # the agent's own code
        raise AgentUnreachable(f"the reset function `{name}` failed: {one_line(error)}") from error


async def _in_thread(function: Callable[[], Any]) -> Any:
    done: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def call() -> None:
        with ignore_exchanges(), contextlib.suppress(concurrent.futures.InvalidStateError):  # abandoned meanwhile
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)
            except SystemExit as error:  # must not end Bylaw
                done.set_exception(RuntimeError(one_line(error)))

    threading.Thread(target=call, daemon=True, name="agent-reset").start()
    return await asyncio.wrap_future(done)


async def reset_by_request(url: str) -> None:
    """Send a POST. Any status other than 2xx is a failure. Raises AgentUnreachable."""
    try:
        status = await asyncio.to_thread(_post, url)
    except (OSError, ValueError) as error:
        raise AgentUnreachable(f"the reset endpoint `{shown_url(url)}` did not answer: {one_line(error)}") from error
    if not 200 <= status < 300:
        raise AgentUnreachable(f"the reset endpoint `{shown_url(url)}` answered {status}")


def _post(url: str) -> int:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must be an absolute http or https URL")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=RESET_SECONDS)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with ignore_exchanges():
            connection.request("POST", target, headers={"Content-Length": "0"})
            return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(one_line(error)) from error
    finally:
        connection.close()
