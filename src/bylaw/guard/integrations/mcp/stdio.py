"""MCP over standard streams: one message in each line."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO

from bylaw.guard.integrations.mcp.connection import Connection
from bylaw.guard.integrations.mcp.messages import MOST_BYTES, Message, Send

PATIENCE = 5.0
"""seconds that a server has to exit after its input has ended, and again after it was asked to"""
_log = logging.getLogger("bylaw")


class StdioServer:
    """A server that is a process of ours."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, folder: str | None = None
    ) -> None:
        self.command, self._environment, self._folder = list(command), environment, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._write: Send | None = None
        self._reader: threading.Thread | None = None

    def start(self, receive: Send, ended: Callable[[], object]) -> None:
        environment = None if self._environment is None else {**os.environ, **self._environment}
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=self._folder
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._write = line_writer(self._process.stdin)
        self._reader = threading.Thread(target=pump, args=(self._process.stdout, receive, ended), daemon=True)
        self._reader.start()

    def send(self, message: Message) -> None:
        assert self._write is not None
        with suppress(BrokenPipeError):  # it has exited, which `ended` reports
            self._write(message)

    def close(self) -> int:
        """Ends its input, and waits for what it still says. The exit code."""
        process = self._process
        if process is None or self._reader is None:
            return 0
        assert process.stdin is not None
        with suppress(OSError):  # what was not read by a server that has exited
            process.stdin.close()
        for end in (process.terminate, process.kill):
            try:
                process.wait(PATIENCE)
                break
            except subprocess.TimeoutExpired:
                end()
        self._reader.join(PATIENCE)
        if not self._reader.is_alive() and process.stdout is not None:
            process.stdout.close()
        return process.wait()


def pump(source: IO[bytes], take: Send, ended: Callable[[], object]) -> None:
    """Pass on each line until the source ends, or cannot be passed on any more."""
    try:
        for line in lines(source):
            take(Message(line))
    except BrokenPipeError:
        pass  # the other side has gone, so nobody misses the rest
    except Exception as problem:  # nothing passes a proxy that no longer works
        _log.error("the connection is closed: %s: %s", type(problem).__name__, problem)
    finally:
        ended()


def lines(source: IO[bytes]) -> Iterator[bytes]:
    while not source.closed and (line := source.readline(MOST_BYTES + 1)):
        if len(line) > MOST_BYTES:
            raise ValueError(f"a message is longer than {MOST_BYTES >> 20} MB")
        if line := line.strip():
            yield line


def line_writer(stream: IO[bytes]) -> Send:
    lock = threading.Lock()

    def write(message: Message) -> None:
        with lock:
            if stream.closed:
                raise BrokenPipeError
            stream.write(message.line + b"\n")
            stream.flush()

    return write


def serve_stdio(make: Callable[[Send], Connection], client: IO[bytes], out: IO[bytes]) -> int:
    """Serve the client on these streams until one side ends. `make` makes the connection, given what writes to the
    client. Returns the exit code of the server. Raises OSError if the server cannot be started."""
    over = threading.Event()
    connection = make(line_writer(out))
    try:
        connection.start(over.set)
        threading.Thread(target=pump, args=(client, connection.from_client, over.set), daemon=True).start()
        over.wait()
    finally:
        code = connection.close()
    return code
