"""Worker processes end with the process that has started them, however that one ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ClassVar

import pytest
import uvicorn
from uvicorn.supervisors import multiprocess

from bylaw.files.unix_socket import is_served
from bylaw.guard.service.server import Workers, end_with_parent
from tests.service.support import RULES
from tests.service.test_workers import workers_of

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def _wait_until(is_done: Any) -> None:
    until = time.monotonic() + 120
    while not is_done() and time.monotonic() < until:
        time.sleep(0.01)
    assert is_done()


def _work(writing: int) -> None:
    """A worker that reports the signal that ends it. The alarm ends it if nothing else does."""
    signal.alarm(60)
    signal.signal(signal.SIGTERM, lambda *_: os.write(writing, b"SIGTERM") and os._exit(0))
    end_with_parent()
    os.write(writing, b"started,")
    while True:
        signal.pause()


def _start_worker(writing: int) -> None:
    context = multiprocessing.get_context("fork")
    context.Process(target=_work, args=(writing,)).start()
    signal.pause()


def test_a_worker_ends_in_order_when_its_parent_is_killed() -> None:
    reading, writing = os.pipe()
    parent = multiprocessing.get_context("fork").Process(target=_start_worker, args=(writing,))
    parent.start()
    os.close(writing)
    assert os.read(reading, 100) == b"started,"
    parent.kill()
    parent.join()
    assert os.read(reading, 100) == b"SIGTERM"
    assert os.read(reading, 100) == b"", "and its process has ended"
    os.close(reading)


class _Started(multiprocess.Process):
    """A worker that is never started. It notes whether SIGINT would be blocked in it."""

    blocked: ClassVar[list[bool]] = []
    is_dead = False

    def start(self) -> None:
        self.blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

    def is_alive(self, timeout: float = 5) -> bool:
        return not self.is_dead

    def is_ready(self, timeout: float = 5) -> bool:
        return True

    def wait_until_ready(self, *_: Any) -> bool:
        return True

    def terminate(self) -> None: ...

    kill = join = terminate


@contextmanager
def _signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in multiprocess.SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_every_worker_starts_with_ctrl_c_blocked_and_the_parent_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocess, "Process", _Started)
    monkeypatch.setattr(_Started, "blocked", [])
    steps = chain([signal.SIGTTIN, signal.SIGHUP, "a worker dies", signal.SIGINT], repeat("wait", 60))

    class Stepping(Workers):
        def handle_signals(self) -> None:
            step = next(steps)
            if step == "a worker dies":
                self.processes[0].is_dead = True  # type: ignore[attr-defined]
            elif isinstance(step, signal.Signals):
                os.kill(os.getpid(), step)  # another thread of the tests may get it first, and pass it on a bit later
            super().handle_signals()

    with _signals_as_before():
        Stepping(uvicorn.Config("x:y", workers=2), sockets=[]).run()
    assert next(steps) == "wait", "Ctrl-C has ended it"
    assert _Started.blocked == [True] * (2 + 1 + 3 + 1), "two, one more, three restarted, one in place of a dead one"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@contextmanager
def _served(folder: Path) -> Iterator[subprocess.Popen[str]]:
    (folder / "guard.yaml").write_text(RULES)
    command = [sys.executable, "-m", "bylaw", "guard", "serve", "-p", "guard.yaml", "--store", "guard.db"]
    command += ["--listen", "unix:s", "--workers", "2", "--no-console"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True) as service:
        try:
            yield service
        finally:
            with suppress(ProcessLookupError):
                os.killpg(service.pid, signal.SIGKILL)


@needs_proc
@pytest.mark.proof
def test_a_service_that_was_killed_can_be_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for end in (signal.SIGKILL, signal.SIGTERM):
        with _served(tmp_path) as service:
            assert service.stderr is not None and service.stderr.readline() == "listening on unix:s\n"
            assert len(workers_of(service.pid)) == 2
            service.send_signal(end)
            assert service.communicate(timeout=60)[1] == "", "its workers have ended too, and closed the pipe"
        assert service.returncode == (-end if end == signal.SIGKILL else 0)
        assert os.path.exists("s") == (end == signal.SIGKILL) and not is_served("s")


@needs_proc
@pytest.mark.proof
@pytest.mark.parametrize("moment", ["a worker was started", "a worker imports", "a worker serves"])
def test_ctrl_c_at_a_terminal_prints_nothing_of_the_workers(tmp_path: Path, moment: str) -> None:
    """A terminal sends Ctrl-C to the whole process group."""
    with _served(tmp_path) as service:
        assert service.stderr is not None
        _wait_until(lambda: workers_of(service.pid))
        if moment == "a worker imports":
            maps = Path(f"/proc/{workers_of(service.pid)[0]}/maps")
            _wait_until(lambda: b"msgspec" in maps.read_bytes())
        if moment == "a worker serves":
            assert service.stderr.readline() == "listening on unix:s\n"
        os.killpg(service.pid, signal.SIGINT)
        assert service.communicate(timeout=60)[1].replace("listening on unix:s\n", "") == ""
    assert service.returncode == 0
    assert not (tmp_path / "s").exists()
