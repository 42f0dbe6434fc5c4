"""Restores a clean state before a run, with a function of the agent's owner or a POST to a URL."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.client
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bylaw.contract.agents.python_target import import_path, load
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import AgentSpec, shown_url
from bylaw.wire.listeners import unobserved
from bylaw.wire.values import one_line

RESET_SECONDS = 30.0


def has_reset(spec: AgentSpec) -> bool:
    return bool(spec.reset_endpoint or spec.reset_function)


async def reset_agent(spec: AgentSpec, base: Path) -> None:
    """Reset an agent that runs in another process. Raises AgentUnreachable."""
    if spec.reset_function:
        with import_path(base):
            await reset_by_function(load(spec.reset_function, base), spec.reset_function)
    if spec.reset_endpoint:
        await reset_by_request(spec.reset_endpoint)


async def reset_by_function(function: Callable[[], Any], name: str, *, seconds: float = RESET_SECONDS) -> None:
    """Call it in a thread, which is abandoned when the time is over. A coroutine function is awaited here."""
    try:
        async with asyncio.timeout(seconds):
            with unobserved():
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
        with unobserved(), contextlib.suppress(concurrent.futures.InvalidStateError):  # abandoned meanwhile
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)
            except SystemExit as error:  # must not end Bylaw
                done.set_exception(RuntimeError(one_line(error)))

    threading.Thread(target=call, daemon=True, name="agent-reset").start()
    return await asyncio.wrap_future(done)


async def reset_by_request(url: str, *, seconds: float = RESET_SECONDS) -> None:
    """Send a POST. Any status other than 2xx is a failure. Raises AgentUnreachable."""
    try:
        status = await asyncio.to_thread(_post, url, seconds)
    except (OSError, ValueError) as error:
        raise AgentUnreachable(f"the reset endpoint `{shown_url(url)}` did not answer: {one_line(error)}") from error
    if not 200 <= status < 300:
        raise AgentUnreachable(f"the reset endpoint `{shown_url(url)}` answered {status}")


def _post(url: str, seconds: float) -> int:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must be an absolute http or https URL")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=seconds)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with unobserved():
            connection.request("POST", target, headers={"Content-Length": "0"})
            return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(one_line(error)) from error
    finally:
        connection.close()
