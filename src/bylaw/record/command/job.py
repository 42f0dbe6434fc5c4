"""Run a command and record what it asks its models."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bylaw.record.command.child import run_child, signals_held
from bylaw.record.command.environment import Address, child_environment
from bylaw.record.command.proxy import RecordingProxy
from bylaw.record.recording import Recording
from bylaw.wire.proxy.authority import Authority

_BY_SIGNAL = 128


class Recorded(Struct, frozen=True):
    """What came of it."""

    status: int
    """of the command, as a shell tells it"""
    unread: list[str]
    """hosts to which tunnels passed unread, the most frequent first"""
    refused: list[str]
    """hosts whose client did not trust our certificate"""


def record_command(
    command: Sequence[str], recording: Recording, *, known: Mapping[str, Address], hosts: tuple[str, ...] = ()
) -> Recorded:
    """`known`: where each provider's clients would ask. Raises OSError where the command cannot be started."""
    with signals_held() as signals, tempfile.TemporaryDirectory(prefix="bylaw-") as name:
        folder = Path(name)
        authority = Authority.new(folder)
        upstreams = {provider: address.origin for provider, address in known.items()}
        proxy = RecordingProxy(recording, upstreams=upstreams, authority=authority, hosts=hosts)
        with _served(proxy):
            env = child_environment(os.environ, proxy=proxy.url(), known=known, authority=authority, folder=folder)
            status = run_child(command, env, signals=signals)
    unread = [host for host, _ in proxy.unread.most_common()]
    return Recorded(status, unread, [host for host, _ in proxy.refused.most_common()])


def was_killed(status: int) -> bool:
    return status > _BY_SIGNAL


@contextmanager
def _served(proxy: RecordingProxy) -> Iterator[None]:
    """The proxy on a thread of its own; when it ends, what is still under way is heard as far as it came."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="bylaw-proxy", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
