"""A child that runs as if its caller had started it: same terminal, same streams, and the signals meant for it.

It stays in our process group, so a terminal's Ctrl-C and Ctrl-Z reach it without us. Signals that somebody sends to us
alone are passed on. They are taken from a queue, not by handlers, for only so is it known who sent them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

_PASSED_ON = frozenset(
    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
)
Signals: TypeAlias = set[int] | set[signal.Signals]
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and a child must not inherit that"""


@contextmanager
def signals_held() -> Iterator[Signals]:
    """Signals wait to be passed on. INVARIANT: entered before any other thread is started, for threads inherit it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        yield before
    finally:
        _discard_pending()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_child(command: Sequence[str], env: Mapping[str, str], *, signals: Signals) -> int:
    """Its exit status; 128 and the signal's number where a signal ended it. `signals`: what it has blocked itself.

    Raises OSError where it cannot be started.
    """
    child = os.posix_spawnp(command[0], list(command), dict(env), setsigmask=signals, setsigdef=_RESTORED)
    over = threading.Event()
    threading.Thread(target=_pass_on, args=(child, over), daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    over.set()  # its number may be another process's from now on
    return status if status >= 0 else 128 - status


def _pass_on(child: int, over: threading.Event) -> None:
    while not over.is_set():
        number, by_terminal = _next_signal()
        if not by_terminal and not over.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, number)


def _next_signal() -> tuple[int, bool]:
    """The next signal, and whether a terminal sent it, and so to the child as well."""
    if hasattr(signal, "sigwaitinfo"):
        told = signal.sigwaitinfo(_PASSED_ON)
        return told.si_signo, told.si_code > 0
    number = signal.sigwait(_PASSED_ON)
    return number, number in (signal.SIGINT, signal.SIGQUIT) and os.isatty(0)


def _discard_pending() -> None:
    """What was meant for a child that is no more."""
    pending = signal.sigpending() & _PASSED_ON
    while pending:
        signal.sigwait(pending)
        pending = signal.sigpending() & _PASSED_ON
