"""The run that the code now running belongs to.

Agent code carries its run in a context variable, which tasks, `asyncio.to_thread` and the frameworks' executors hand
on. Threads that an agent starts by itself do not inherit it: their calls belong to the only run under way, or, where
there are several, to none.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `bylaw.tool` imports this module into agents, where it must cost nothing
    from bylaw.contract.live.intercept import Interceptor
    from bylaw.contract.live.plan import Plan
    from bylaw.contract.live.recorder import Recorder


class RunOver(BaseException):
    """Raised in agent code whose run has ended, as after a timeout: nothing it still does may count or reach out.

    Not an Exception, so that a retry loop does not go on forever in an abandoned thread.
    """


class LiveRun:
    """One run of a Python agent: what hits its calls, and what writes them down."""

    def __init__(self, plan: Plan, recorder: Recorder, interceptor: Interceptor) -> None:
        self.plan = plan
        self.recorder = recorder
        self.interceptor = interceptor
        self.first_results: dict[str, Any] = {}
        """what each tool first returned; `stale` answers it again"""
        self.has_strays = False
        """whether a call was made that may be this run's or another's"""
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def wait(self, seconds: float) -> None:
        """Sleeps in a thread of the agent's, but not beyond the end of the run."""
        if self._over.wait(seconds):
            raise RunOver

    def end(self) -> None:
        self._over.set()


_run: ContextVar[LiveRun | None] = ContextVar("bylaw_run", default=None)
_aside: ContextVar[bool] = ContextVar("bylaw_aside", default=False)
_under_way: list[LiveRun] = []
_our_threads: Counter[int] = Counter()
"""how many runs each thread of Bylaw's waits for"""
_lock = threading.Lock()


def current_run() -> LiveRun | None:
    """The run this code belongs to; None outside of one. Raises RunOver where that run has ended."""
    if _aside.get():
        return None
    run = _run.get()
    if run is None:
        run = _only_run()
        if run is None:
            _note_stray()
    elif run.is_over:
        raise RunOver
    return run


def is_aside() -> bool:
    return _aside.get()


def is_agent_code() -> bool:
    """Whether this code was called by an agent, even one that was given up, or resets one."""
    return _aside.get() or _run.get() is not None or _only_run() is not None


def _only_run() -> LiveRun | None:
    if _our_threads[threading.get_ident()]:
        return None
    with _lock:
        return _under_way[0] if len(_under_way) == 1 else None


def _note_stray() -> None:
    if not _our_threads[threading.get_ident()]:
        for run in tuple(_under_way):
            run.has_strays = True


@contextmanager
def under_way(run: LiveRun) -> Iterator[None]:
    """The run begins and ends; meanwhile this thread is ours and not an agent's."""
    with _lock:
        _under_way.append(run)
        _our_threads[threading.get_ident()] += 1
    try:
        yield
    finally:
        run.end()
        with _lock:
            _under_way.remove(run)
            _our_threads[threading.get_ident()] -= 1


@contextmanager
def inside(run: LiveRun) -> Iterator[None]:
    """The code inside belongs to the run."""
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


@contextmanager
def aside() -> Iterator[None]:
    """What happens inside is carried already, or is our own: it is not looked at again."""
    token = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(token)
