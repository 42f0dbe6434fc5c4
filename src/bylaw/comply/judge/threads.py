"""Runs jobs side by side, in a bounded number of threads, until a deadline.

`concurrent.futures` waits for its threads at the end of the program. These threads are daemons: a job that hangs past
the deadline is left behind.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def run_side_by_side(
    jobs: Sequence[Callable[[], T]], *, most: int, deadline: float, stop: threading.Event | None = None
) -> dict[int, T | Exception]:
    """The index of each job that ended in time → its result or its exception.

    At most `most` jobs run at once. After an exception, or once `stop` is set, no further job starts, and those that
    run are waited for. `deadline` is on the clock of `time.monotonic`.
    """
    waiting = deque(enumerate(jobs))
    ended: queue.SimpleQueue[tuple[int, T | Exception] | None] = queue.SimpleQueue()
    stop = threading.Event() if stop is None else stop

    def work() -> None:
        try:
            while not stop.is_set():
                index, job = waiting.popleft()
                try:
                    ended.put((index, job()))
                except Exception as problem:
                    stop.set()
                    ended.put((index, problem))
        except IndexError:
            pass  # no job is left
        finally:
            ended.put(None)

    results: dict[int, T | Exception] = {}
    running = min(most, len(jobs)) if time.monotonic() < deadline else 0
    for _ in range(running):
        threading.Thread(target=work, name="bylaw-judge", daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while running:
            one = ended.get(timeout=max(deadline - time.monotonic(), 0))
            if one is None:
                running -= 1
            else:
                results[one[0]] = one[1]
    stop.set()
    return results
