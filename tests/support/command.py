"""`run_bylaw`: a command as a user types it, in a process of its own. See `command_server`."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bylaw.files.temporary import TemporaryFolder

ROOT = Path(__file__).resolve().parent.parent.parent
_lock = threading.Lock()
_server: subprocess.Popen[bytes] | None = None


def run_bylaw(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes = "",
    merge_streams: bool = False,
    timeout: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run `bylaw ARGUMENTS` and return its exit code, output and errors, as `subprocess.run` does.

    `env` replaces the environment. `merge_streams` writes standard error into standard output, in the order of writing.
    """
    with TemporaryFolder("bylaw-command-") as folder:
        streams = {name: os.path.join(folder, name) for name in ("stdin", "stdout", "stderr")}
        data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
        Path(streams["stdin"]).write_bytes(data)
        for name in ("stdout", "stderr"):
            Path(streams[name]).touch()
        if merge_streams:
            streams["stderr"] = streams["stdout"]
        order: dict[str, Any] = {
            "arguments": [os.fspath(argument) for argument in arguments],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            **streams,
        }
        code = _order(order, timeout)
        printed = Path(streams["stdout"]).read_bytes().decode("utf-8", "replace")
        errors = "" if merge_streams else Path(streams["stderr"]).read_bytes().decode("utf-8", "replace")
    return subprocess.CompletedProcess(order["arguments"], code, printed, errors)


def _order(order: dict[str, Any], timeout: float) -> int:
    with _lock:
        server = _started()
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(order).encode() + b"\n")
        process = int(server.stdout.readline())
        ready, _, _ = select.select([server.stdout], [], [], timeout)
        if not ready:
            os.killpg(process, signal.SIGKILL)
            server.stdout.readline()
            raise subprocess.TimeoutExpired(str(order["arguments"]), timeout)
        return int(server.stdout.readline())


def _started() -> subprocess.Popen[bytes]:
    global _server  # noqa: PLW0603  # one for each test process
    if _server is None or _server.poll() is not None:
        _server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # nothing waits in a buffer where `select` does not see it
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        atexit.register(_server.kill)
    return _server
