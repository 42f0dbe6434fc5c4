"""Threads: what an agent hands to one belongs to the run that hands it over, and is heard by whoever listens there."""

from __future__ import annotations

import contextvars
import functools
from typing import Any

from bylaw.wire.current import current_run
from bylaw.wire.listening import handed_on
from bylaw.wire.patches.patches import Patches


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
            return original(self, handed_on(fn), *args, **kwargs)
        return original(self, contextvars.copy_context().run, handed_on(fn), *args, **kwargs)

    return submit


def _start(original: Any) -> Any:
    @functools.wraps(original)
    def start(self: Any) -> None:
        run = self.run
        handed = handed_on(run)
        if handed is not run:
            self.run = handed
        original(self)

    return start
