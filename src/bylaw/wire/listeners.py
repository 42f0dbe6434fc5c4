"""Who takes part in an exchange of this process: the run it belongs to, and the listeners.

A run (of `bylaw contract`) may change an exchange; listeners (recordings) only observe it. Agent code carries its run
in a context variable, which tasks, `asyncio.to_thread` and the executors of frameworks pass on. A thread that an agent
starts by itself belongs to the run that started it. When that is over, as for a worker that serves many runs, its calls
belong to the only run in progress, or to none if there are several.

This module is imported into agents by `bylaw.tool`, so it imports nothing that is slow to load.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from bylaw.wire.exchange import Exchange, Outgoing
    from bylaw.wire.patch_on_import import Patches


class RunOver(BaseException):
    """Raised in agent code whose run has ended, as after a timeout: nothing it still does may count or be sent.

    Not an Exception, so that a retry loop does not continue forever in an abandoned thread.
    """


class Run(Protocol):
    """A run of an agent in this process."""

    has_strays: bool
    """whether a call was made that may belong to this run or to another"""

    @property
    def is_over(self) -> bool: ...

    def begin(self, request: Outgoing) -> Exchange:
        """The exchange for a request of the agent."""
        ...

    def wait(self, seconds: float) -> None:
        """Sleep in a thread of the agent. Raises RunOver if the run ends meanwhile."""
        ...

    def end(self) -> None: ...


class Listener(Protocol):
    def __call__(self, exchange: Exchange, /) -> Exchange:
        """An exchange that behaves like `exchange` and is observed."""
        ...


# The current run

_run: ContextVar[Run | None] = ContextVar("bylaw_run", default=None)
_started_by: ContextVar[Run | None] = ContextVar("bylaw_started_by", default=None)
"""the run that started this thread"""
_unobserved: ContextVar[bool] = ContextVar("bylaw_unobserved", default=False)
_runs: list[Run] = []
"""the runs in progress"""
_our_threads: Counter[int] = Counter()
"""for each thread of Bylaw: how many runs it waits for"""
_lock = threading.Lock()


def current_run() -> Run | None:
    """The run that the calling code belongs to; None outside a run. Raises RunOver if that run has ended."""
    if _unobserved.get():
        return None
    run = _run.get()
    if run is not None:
        if run.is_over:
            raise RunOver
        return run
    starter = _started_by.get()
    run = starter if starter is not None and not starter.is_over else _only_run()
    if run is None and not _our_threads[threading.get_ident()]:
        for possible in tuple(_runs):
            possible.has_strays = True
    return run


def is_agent_code() -> bool:
    """Whether an agent called this code, also one whose run was abandoned, or one that is being reset."""
    return _unobserved.get() or _run.get() is not None or _only_run() is not None


def _only_run() -> Run | None:
    if _our_threads[threading.get_ident()]:
        return None
    with _lock:
        return _runs[0] if len(_runs) == 1 else None


@contextmanager
def register_run(run: Run) -> Iterator[None]:
    """The run is in progress inside this block. The calling thread is Bylaw's and not the agent's."""
    with _lock:
        _runs.append(run)
        _our_threads[threading.get_ident()] += 1
    try:
        yield
    finally:
        run.end()
        with _lock:
            _runs.remove(run)
            _our_threads[threading.get_ident()] -= 1


@contextmanager
def run_context(run: Run) -> Iterator[None]:
    """Code inside this block belongs to the run."""
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


@contextmanager
def ignore_exchanges() -> Iterator[None]:
    """Exchanges inside this block are Bylaw's own, or handled already: patches pass them on."""
    token = _unobserved.set(True)
    try:
        yield
    finally:
        _unobserved.reset(token)


# Listeners

FindListeners: TypeAlias = Callable[[], Sequence[Listener]]
"""the listeners of the calling code"""
Wrap: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""the same function, with the listeners of the calling code, in any thread"""

_find_listeners: FindListeners | None = None
_wrap: Wrap | None = None


def set_listeners(find: FindListeners | None, wrap: Wrap | None) -> None:
    """Set the functions that find the listeners of an exchange; None if there are none."""
    global _find_listeners, _wrap
    _find_listeners, _wrap = find, wrap


def wrap_for_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    wrap = _wrap
    return function if wrap is None else wrap(function)


class Participants:
    """The run and the listeners of one exchange."""

    def __init__(self, run: Run | None, listeners: Sequence[Listener]) -> None:
        self._run = run
        self._listeners = listeners

    def begin(self, request: Outgoing) -> Exchange:
        from bylaw.wire.exchange import Exchange

        exchange = Exchange(request) if self._run is None else self._run.begin(request)
        for listener in self._listeners:
            exchange = listener(exchange)
        return exchange

    def wait(self, seconds: float) -> None:
        if self._run is not None:
            self._run.wait(seconds)
        elif seconds > 0:
            time.sleep(seconds)


def participants(method: str, url: str) -> Participants | None:
    """Who takes part in this request of the calling code; None: it is sent as if Bylaw were not there.

    A run takes part in every request, a listener only in those that may go to a model.
    """
    if _unobserved.get():
        return None
    run, find = current_run(), _find_listeners
    if run is None and (find is None or not _may_ask_model(method, url)):
        return None
    listeners = () if find is None else find()
    return Participants(run, listeners) if run is not None or listeners else None


def _may_ask_model(method: str, url: str) -> bool:
    from bylaw.wire.formats import format_at

    return format_at(method, url) is not None


def report_unreadable(method: str, url: str) -> None:
    """Report a request whose body cannot be read: a recording counts it as lost if it is for a model."""
    find = _find_listeners
    if _unobserved.get() or find is None or not _may_ask_model(method, url):
        return
    from bylaw.wire.exchange import Exchange, Outgoing

    for listener in find():
        listener(Exchange(Outgoing(method, url, {"content-type": "application/json"}, b"")))


# Threads: work that an agent passes to a thread belongs to the run and the listeners of the code that passed it


def patch(module: Any, patches: Patches) -> None:
    """`module` is concurrent.futures.thread, or threading."""
    if module.__name__ == "threading":
        patches.replace(module.Thread, "start", _start)
    else:
        patches.replace(module.ThreadPoolExecutor, "submit", _submit)


def _submit(original: Any) -> Any:
    @functools.wraps(original)
    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if current_run() is None:
            return original(self, wrap_for_thread(fn), *args, **kwargs)
        return original(self, contextvars.copy_context().run, wrap_for_thread(fn), *args, **kwargs)

    return submit


def _start(original: Any) -> Any:
    @functools.wraps(original)
    def start(self: Any) -> None:
        own, run = self.run, current_run()
        wrapped = wrap_for_thread(own)
        if run is not None:
            wrapped = functools.partial(_run_in_thread, run, wrapped)
        if wrapped is not own:
            self.run = wrapped
        original(self)

    return start


def _run_in_thread(starter: Run, function: Callable[[], Any]) -> Any:
    _started_by.set(starter)
    return function()
