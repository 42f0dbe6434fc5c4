"""Worker processes of tests: forked from one process that has imported what they need."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext


def worker_context() -> ForkServerContext:
    """Like the `spawn` context, without the imports that every new interpreter repeats."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "tests.guard.kill_worker", "tests.incidents.kill_worker"])
    return context


def end_with_parent() -> None:
    """Called in a worker: it ends as soon as the process that started it does, even if that one is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is no worker"
    threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
