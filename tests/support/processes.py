"""Worker processes of tests: forked from one process that has imported what they need."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext


def worker_context() -> ForkServerContext:
    """Like the `spawn` context, without the imports that every new interpreter repeats."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "tests.guard.kill_worker", "tests.incidents.kill_worker"])
    return context
