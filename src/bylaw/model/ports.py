"""What a job needs from the outside world. Adapters provide it; `cli` hands it in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event


class TraceSource(Protocol):
    """A trace that can be folded once, event by event, without holding it in memory.

    `complete`, `notes`, `problems` and `skipped` are settled only when the iteration has ended.
    """

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str | None: ...
    @property
    def complete(self) -> bool: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def problems(self) -> Sequence[Diagnostic]: ...
    @property
    def skipped(self) -> int: ...
    def __iter__(self) -> Iterator[Event]: ...
