"""Pools of threads: what an agent hands to one belongs to the run that hands it over, whichever run made the thread."""

from __future__ import annotations

import contextvars
import functools
from typing import Any

from bylaw.adapters.live.current import current_run
from bylaw.adapters.live.patching.patches import Patches


def patch(module: Any, patches: Patches) -> None:
    """`module` is concurrent.futures.thread."""
    patches.replace(module.ThreadPoolExecutor, "submit", _submit)


def _submit(original: Any) -> Any:
    @functools.wraps(original)
    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if current_run() is None:
            return original(self, fn, *args, **kwargs)
        return original(self, contextvars.copy_context().run, fn, *args, **kwargs)

    return submit
