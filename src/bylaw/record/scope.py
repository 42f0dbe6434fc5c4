"""Which recordings of this process observe a call.

Code carries its recordings in a context variable, which tasks inherit. Threads that it starts, and work that it submits
to a pool of threads, get them too. Of several recordings to one file only the innermost writes, so that a call is
written once. A call of code that carries none, as in a thread that was started before, belongs to the outermost
recording. If there are several of those, each file gets it, in the session `unassigned`.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from bylaw.record.recording import Recording
from bylaw.wire.exchange import Exchange
from bylaw.wire.listeners import Listener, set_listeners
from bylaw.wire.patch_on_import import LIBRARIES

UNASSIGNED = "unassigned"
_scope: ContextVar[tuple[Recording, ...]] = ContextVar("bylaw_recordings", default=())
"""from the outermost to the innermost"""
_roots: list[Recording] = []
"""those that are not inside another"""
_open: list[Recording] = []
_lock = threading.Lock()


def enter(recording: Recording) -> None:
    """Record the code from here on. If that fails, the recording is closed."""
    try:
        LIBRARIES.open()
    except BaseException:
        recording.close(complete=False)
        raise
    around = _carried()
    with _lock:
        if not around:
            _roots.append(recording)
        _open.append(recording)
        set_listeners(_listeners, _wrap_for_thread)
    _scope.set((*around, recording))


def leave(recording: Recording) -> None:
    """May be called in another context than `enter`, where a closed recording is ignored."""
    _scope.set(tuple(one for one in _scope.get() if one is not recording))
    with _lock:
        if recording in _roots:
            _roots.remove(recording)
        _open.remove(recording)
        if not _open:
            set_listeners(None, None)
        LIBRARIES.close()


def _carried() -> tuple[Recording, ...]:
    return tuple(recording for recording in _scope.get() if recording.is_open)


def _listeners() -> Sequence[Listener]:
    carried = _carried()
    if carried:
        innermost = {recording.file.identity: recording for recording in carried}
        return [recording.listen for recording in innermost.values()]
    with _lock:
        roots = {recording.file.identity: recording for recording in _roots}
        if len(_roots) <= 1:
            return [recording.listen for recording in roots.values()]
    return [functools.partial(_unassigned, recording) for recording in roots.values()]


def _unassigned(recording: Recording, exchange: Exchange) -> Exchange:
    return recording.listen(exchange, session=UNASSIGNED)


def _wrap_for_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Also if the code carries no recording, because the thread may still carry those of earlier work."""
    carried = _scope.get()

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        token = _scope.set(carried)
        try:
            return function(*args, **kwargs)
        finally:
            _scope.reset(token)

    return run


def _free_lock() -> None:
    """In a forked child, where the thread that held the lock does not exist."""
    if _lock.locked():
        _lock.release()


os.register_at_fork(after_in_child=_free_lock)
