"""A progress bar on stderr, for what takes long, on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from bylaw.model.events import Event

LONG = 20 * 1024 * 1024
_EVERY = 512
"""events between two looks at the clock"""


class Watched:
    """A trace source that reports how far it has been read."""

    def __init__(self, source: Any, bar: Any) -> None:
        self._source = source
        self._bar = bar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __iter__(self) -> Iterator[Event]:
        told, due = 0, time.monotonic()
        for number, event in enumerate(self._source):
            if number % _EVERY == 0 and time.monotonic() >= due:
                position = self._source.position
                self._bar.update(position - told)
                told, due = position, time.monotonic() + 0.2
            yield event


@contextlib.contextmanager
def shown(source: Any) -> Iterator[Any]:
    """The source itself, or one that draws a bar while it is read."""
    if not sys.stderr.isatty() or (source.size or 0) < LONG:
        yield source
        return
    with click.progressbar(length=source.size, label=source.name, file=sys.stderr, width=30) as bar:
        yield Watched(source, bar)


@contextlib.contextmanager
def counted(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar over things that are counted: it is told how many are done, and of how many."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr, width=30, show_pos=True) as bar:

        def tell(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield tell
