"""Brings an agent back to a clean state before a run: a function of its own, or a POST to a URL."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any

from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import shown_url
from bylaw.wire.current import aside
from bylaw.wire.values import one_line

RESET_SECONDS = 30.0


async def reset_by_function(function: Callable[[], Any], name: str, *, seconds: float = RESET_SECONDS) -> None:
    """Calls it in a thread, which is given up with its time; a coroutine function is awaited here."""
    try:
        async with asyncio.timeout(seconds):
            with aside():
                value = function() if inspect.iscoroutinefunction(function) else await _in_thread(function)
                if inspect.isawaitable(value):
                    await value
    except TimeoutError:
        raise AgentUnreachable(f"the reset function `{name}` did not return within {seconds:g} s") from None
    except Exception as error:  # the agent's own code
        raise AgentUnreachable(f"the reset function `{name}` failed: {one_line(error)}") from error


async def _in_thread(function: Callable[[], Any]) -> Any:
    done: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def call() -> None:
        with aside(), contextlib.suppress(concurrent.futures.InvalidStateError):  # given up meanwhile
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)
            except SystemExit as error:  # ends the reset, and not Bylaw
                done.set_exception(RuntimeError(one_line(error)))

    threading.Thread(target=call, daemon=True, name="agent-reset").start()
    return await asyncio.wrap_future(done)


async def reset_by_request(url: str, *, seconds: float = RESET_SECONDS) -> None:
    """Sends a POST; anything but a 2xx answer is a failure."""
    try:
        status = await asyncio.to_thread(_post, url, seconds)
    except (OSError, ValueError) as error:
        raise AgentUnreachable(f"the reset endpoint `{shown_url(url)}` did not answer: {one_line(error)}") from error
    if not 200 <= status < 300:
        raise AgentUnreachable(f"the reset endpoint `{shown_url(url)}` answered {status}")


def _post(url: str, seconds: float) -> int:
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must be an absolute http or https URL")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=seconds)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with aside():
            connection.request("POST", target, headers={"Content-Length": "0"})
            return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(one_line(error)) from error
    finally:
        connection.close()
