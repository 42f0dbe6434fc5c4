"""Interfaces of the outside world that jobs need. Adapters implement them; `cli` passes them in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


class TextSimilarity(Protocol):
    """How alike two texts are, in [0, 1]."""

    @property
    def name(self) -> str: ...
    def similarity(self, left: str, right: str) -> float: ...


class Embedder(Protocol):
    """Gives each text a direction: one row a text, of length 1, or zeros where the text holds nothing."""

    @property
    def name(self) -> str: ...
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class DeliveryResult(Struct, frozen=True, kw_only=True):
    """The result of one attempt to deliver a notification."""

    answer: int | None = None
    """the HTTP status; None where there was none"""
    problem: str | None = None
    final: bool = False
    """whether trying again is of no use"""

    @property
    def delivered(self) -> bool:
        return self.problem is None


class Poster(Protocol):
    """Delivers a notification to its recipient. Never raises, and always returns soon."""

    def __call__(self, body: bytes, *, key: str, at: float) -> DeliveryResult: ...
