"""The processes that an agent leaves behind: found when it stops, then ended or named.

Two ways find them. Each process inherits the agent's environment, which has a mark; `env -i` removes it. And on Linux,
this process becomes the reaper of its descendants while an agent runs: a process whose parent has ended becomes a child
of ours, whatever its session, group and environment. A process that another service starts for the agent (systemd, a
container engine) is not a descendant, and is not found. Both ways need `/proc`, so elsewhere nothing is found.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "BYLAW_AGENT"
"""the variable by which all processes of one agent are known"""
_GRACE = 0.5
"""seconds between SIGTERM and SIGKILL"""
_POLL = 0.005
_ROUNDS = 5
"""a process that is ended hands its own children on, so that they are looked for again"""


class Leftovers:
    """Of one agent. `start` comes before its first process, `stop` after all that Bylaw itself has started."""

    def __init__(self, *, ends_marked: bool, ends_unmarked: bool) -> None:
        """Whether processes with the mark, and those without, are ended and not only named.

        In a program of somebody else, another thread may have started one that has no mark.
        """
        self.mark = secrets.token_hex(8)
        self._ends_marked, self._ends_unmarked = ends_marked, ends_unmarked
        self._earlier: set[int] | None = None
        """the children of this process before the agent started; None: not started"""
        self._ended: dict[int, str] = {}
        self._left: dict[int, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        return {MARK: self.mark}

    @property
    def warnings(self) -> tuple[str, ...]:
        said = ((self._ended, ", which were ended"), (self._left, ""))
        return tuple(
            f"the agent left processes behind{how}: " + ", ".join(f"`{name}` ({pid})" for pid, name in found.items())
            for found, how in said
            if found
        )

    def start(self) -> None:
        if self._earlier is None:
            self._earlier = set(_children())
            _reaper.acquire()

    def reap(self) -> None:
        """Take the exit states of adopted processes, as an init does. Only where no other code waits for children."""
        while self._ends_unmarked and self._earlier is not None and sys.platform == "linux":
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in started:
                return
            with suppress(ChildProcessError):
                os.waitpid(ended.si_pid, os.WNOHANG)

    async def stop(self) -> None:
        if self._earlier is None:
            return
        try:
            for _ in range(_ROUNDS):
                found = self._find()
                ours = {pid for pid, (_, ends) in found.items() if ends}
                await _end(ours)
                ended = {pid for pid in ours if not _is_alive(pid)}
                for pid in ended:
                    with suppress(ChildProcessError):  # not adopted
                        os.waitpid(pid, os.WNOHANG)
                self._ended |= {pid: found[pid][0] for pid in ended}
                self._left = {pid: name for pid, (name, _) in found.items() if pid not in ended}
                if not ended:
                    break
        finally:
            self._earlier = None
            _reaper.release()

    def _find(self) -> dict[int, tuple[str, bool]]:
        """The processes that are left, with their names, and whether to end them."""
        assert self._earlier is not None
        found: dict[int, tuple[str, bool]] = {}
        children = set(_children()) - self._earlier - started
        for pid in _pids():
            mark = _mark_of(pid)
            is_ours = mark == self.mark
            if (is_ours or (pid in children and mark is None)) and pid != os.getpid() and _is_alive(pid):
                found[pid] = _name_of(pid), self._ends_marked if is_ours else self._ends_unmarked
        return found


started: set[int] = set()
"""the processes that Bylaw itself has started and will end"""


async def _end(pids: set[int]) -> None:
    for number, grace in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
        left = [pid for pid in pids if _is_alive(pid)]
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        until = time.monotonic() + grace
        while any(map(_is_alive, left)) and time.monotonic() < until:
            await asyncio.sleep(_POLL)


# The reaper


class _Reaper:
    """Counts the agents that need this process as a reaper. Afterwards it is what it was before."""

    _SET, _GET = 36, 37  # PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    def acquire(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1 and sys.platform == "linux":
                before = ctypes.c_int()
                ctypes.CDLL(None).prctl(self._GET, ctypes.byref(before), 0, 0, 0)
                self._before = before.value
                ctypes.CDLL(None).prctl(self._SET, 1, 0, 0, 0)

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and sys.platform == "linux":
                ctypes.CDLL(None).prctl(self._SET, self._before, 0, 0, 0)


_reaper = _Reaper()


# What `/proc` says


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _children() -> Iterator[int]:
    return (pid for pid in _pids() if _state(pid)[1:2] == [str(os.getpid())])


def _is_alive(pid: int) -> bool:
    return _state(pid)[:1] not in ([], ["Z"], ["X"])


def _state(pid: int) -> list[str]:
    """The state, the parent and more; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _mark_of(pid: int) -> str | None:
    """The mark of whichever agent; None if there is none, or if the process belongs to somebody else."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    return next((one.removeprefix(prefix).decode("latin-1") for one in variables if one.startswith(prefix)), None)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "?"
