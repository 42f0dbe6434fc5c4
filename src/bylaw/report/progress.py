"""A progress bar on stderr for work that takes long, drawn only on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from bylaw.model.events import Event

DELAY = 1.0
"""seconds of work before a bar appears"""
INTERVAL = 0.2
"""seconds between two updates"""
_EVENTS_PER_CHECK = 512
"""events between two looks at the clock"""


class _Bar:
    """A bar that appears once the work has lasted for `DELAY`."""

    def __init__(self, stack: contextlib.ExitStack, label: str, total: int, *, show_count: bool = False) -> None:
        self._stack = stack
        self._label, self._total, self._show_count = label, total, show_count
        self._bar: Any = None
        self._due = time.monotonic() + DELAY

    def update(self, done: int, total: int | None = None, label: str | None = None) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + INTERVAL
        if self._bar is None:
            bar: Any = click.progressbar(
                length=self._total, label=self._label, file=sys.stderr, width=30, show_pos=self._show_count
            )
            self._bar = self._stack.enter_context(bar)
        self._bar.length = total or self._total
        self._bar.label = label or self._label
        self._bar.update(min(done, self._bar.length) - self._bar.pos)


class _WatchedTrace:
    """A trace source that reports how many bytes have been read."""

    def __init__(self, source: Any, report: Callable[[int], None]) -> None:
        self._source = source
        self._report = report

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __iter__(self) -> Iterator[Event]:
        self._report(0)
        for number, event in enumerate(self._source):
            if number % _EVENTS_PER_CHECK == 0:
                self._report(self._source.position)
            yield event


@contextlib.contextmanager
def watch_traces(names: Sequence[str]) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that wraps each trace source in turn: while it is read, one bar shows how much of all is read.

    `names`: the files, which tell how much there is to read. Away from a terminal the sources stay as they are.
    """
    total = sum(os.path.getsize(name) for name in names if os.path.isfile(name))
    if not sys.stderr.isatty() or not total:
        yield lambda source: source
        return
    with contextlib.ExitStack() as stack:
        bar = _Bar(stack, "reading", total)
        earlier = opened = 0

        def watch(source: Any) -> Any:
            nonlocal earlier, opened
            start, label = earlier, f"trace {opened + 1:,} of {len(names):,}"
            earlier, opened = earlier + (source.size or 0), opened + 1
            return _WatchedTrace(source, lambda position: bar.update(start + position, label=label))

        yield watch


@contextlib.contextmanager
def count_progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes how many items are done, and of how many; None away from a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with contextlib.ExitStack() as stack:
        yield _Bar(stack, label, 1, show_count=True).update
