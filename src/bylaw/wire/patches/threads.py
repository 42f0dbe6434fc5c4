"""Threads: work that an agent passes to a thread belongs to the run and the listeners of the code that passed it."""

from __future__ import annotations

import contextvars
import functools
from typing import Any

from bylaw.wire.listeners import current_run, in_thread_of, wrap_for_thread
from bylaw.wire.patch_on_import import Patches


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
            wrapped = in_thread_of(run, wrapped)
        if wrapped is not own:
            self.run = wrapped
        original(self)

    return start
