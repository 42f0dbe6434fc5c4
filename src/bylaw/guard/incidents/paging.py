"""Records of the follow-up one after the other, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from bylaw.guard.stores.ports import GuardStore, R

PAGE = 1_000


def each(
    store: GuardStore,
    kind: type[R],
    *,
    status: str | None = None,
    session: str | None = None,
    until: float | None = None,
) -> Iterator[R]:
    """Oldest first, read page by page."""
    for page in pages(store, kind, status=status, session=session, until=until):
        yield from page


def pages(
    store: GuardStore,
    kind: type[R],
    *,
    status: str | None = None,
    session: str | None = None,
    until: float | None = None,
    size: int = PAGE,
) -> Iterator[Sequence[R]]:
    """Each page begins after the last record of the one before that is still there, whoever drops records meanwhile.
    Where none of them is, it starts from the beginning: rather twice than never."""
    read = partial(store.followed, kind, status=status, session=session, until=until, limit=size)
    given: list[str] = []
    while found := _after(given, read):
        yield found
        given = [*given[-1:], *(one.id for one in found)]


def _after(given: Sequence[str], read: Callable[..., Sequence[R]]) -> Sequence[R]:
    for last in reversed(given):
        with suppress(LookupError):
            return read(after=last)
    return read()
