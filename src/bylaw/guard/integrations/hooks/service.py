"""A process that answers hooks on a Unix socket, so that a hook does not load the guard for each call.

It decides with the same function as a hook without it, and reads rules and store anew for each event, so nothing is out
of date. The socket lies in a folder that only its user can enter. An event is not decided if its hook has gone, or will
not wait for the answer: that hook decides by itself, and the call would count twice.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import bylaw
from bylaw.files.unix_socket import AddressTaken, UnixListener, is_served
from bylaw.guard.integrations.hooks import (
    MOST_BYTES,
    OPTIONS,
    PROJECT,
    UNTIL,
    VERSION,
    is_private,
    socket_path,
)
from bylaw.guard.integrations.hooks.payloads import Answer, refuse
from bylaw.guard.integrations.hooks.run import HookOptions, run_hook

_AT_ONCE = 8
_PATIENCE = 20.0
"""seconds that a client may take to send its event"""


class ServiceProblem(Exception):
    """The service cannot listen; the message says why."""


class HookService:
    def __init__(self, path: str, *, idle: float | None = None) -> None:
        """`idle`: seconds without a hook, after which it ends. Raises ServiceProblem."""
        self.path = path
        if not hasattr(socket, "AF_UNIX"):
            raise ServiceProblem("this system has no Unix sockets")
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if not is_private(path):
            raise ServiceProblem(f"`{os.path.dirname(path)}` is open to others")
        try:
            self._listener = UnixListener(path, backlog=64)
        except AddressTaken:
            raise ServiceProblem(f"another process listens on `{path}`") from None
        except OSError as problem:
            raise ServiceProblem(f"cannot listen on `{path}`: {problem}") from None
        self._listener.socket.settimeout(idle)

    def run(self) -> None:
        """Answer until `close`, or until it was idle for too long, or Bylaw was updated."""
        import bylaw.guard.guard  # so that the first hook does not wait for it
        import bylaw.guard.stores.sqlite
        import bylaw.rules  # noqa: F401

        installed = _installation_stamp()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            while _installation_stamp() == installed:
                try:
                    connection, _ = self._listener.socket.accept()
                except OSError:  # closed, or idle
                    return
                threads.submit(_serve, connection)

    def close(self) -> None:
        self._listener.close()


def start_service(idle: float) -> None:
    """Start a service in the background, unless one listens. If that fails, hooks decide by themselves."""
    path = socket_path()
    with suppress(OSError):
        if not hasattr(socket, "AF_UNIX") or is_served(path):
            return
    # -P: nothing is imported from the folder of the project
    command = [sys.executable, "-P", "-m", "bylaw", "hook", "serve", "--idle", str(idle)]
    with suppress(OSError):
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.path.expanduser("~"),
            start_new_session=True,
        )


def _installation_stamp() -> int:
    """Changes when another version of Bylaw is installed in place of this one."""
    try:
        return os.stat(bylaw.__file__).st_mtime_ns
    except OSError:
        return 0


def _serve(connection: socket.socket) -> None:
    with connection, suppress(OSError):  # a client that has gone decides by itself, or its agent has stopped
        connection.settimeout(_PATIENCE)
        parts, size = [], 0
        while (part := connection.recv(1 << 16)) and size <= MOST_BYTES + (1 << 16):
            parts.append(part)
            size += len(part)
        answer = None if _is_disconnected(connection) else _answer(b"".join(parts))
        if answer is None:
            return
        out, errors = answer.stdout.encode(), answer.stderr.encode("utf-8", "replace")
        connection.sendall(b"%d %d %d\n%b%b" % (answer.code, len(out), len(errors), out, errors))


def _is_disconnected(connection: socket.socket) -> bool:
    """Whether the hook has ended. Other systems may say so of one that has only sent everything."""
    if sys.platform != "linux":
        return False
    asked = select.poll()
    asked.register(connection, 0)
    return any(events & select.POLLHUP for _, events in asked.poll(0))


def _answer(request: bytes) -> Answer | None:
    """None if it is too late."""
    try:
        version, folder, count, rest = request.split(b"\0", 3)
        *named, payload = rest.split(b"\0", int(count))
        pairs = dict(os.fsdecode(one).split("=", 1) for one in named)
        until = float(pairs.get(UNTIL, "inf"))
    except ValueError:
        return refuse("bylaw: the call is not allowed, since the service cannot read the request of the hook")
    if version != VERSION:
        return refuse("bylaw: the call is not allowed, since the service is of another version: restart it")
    if time.monotonic() > until:
        return None
    options: dict[str, Any] = {key: pairs[key] for key in OPTIONS if key in pairs}
    environment = {name: pairs[name] for name in PROJECT if name in pairs}
    return run_hook(payload, HookOptions(folder=os.fsdecode(folder), **options), environment)
