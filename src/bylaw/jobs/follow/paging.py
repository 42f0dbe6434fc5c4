"""Records of the follow-up one after the other, however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.model.stores import GuardStore, R

PAGE = 1_000


def each(store: GuardStore, kind: type[R], *, status: str | None = None, session: str | None = None) -> Iterator[R]:
    """Oldest first, read page by page."""
    for page in pages(store, kind, status=status, session=session):
        yield from page


def pages(
    store: GuardStore, kind: type[R], *, status: str | None = None, session: str | None = None, size: int = PAGE
) -> Iterator[Sequence[R]]:
    """Each page begins after the last record of the one before. Whoever drops or changes records meanwhile does so
    with those that were given out, but for the last of a page."""
    last: str | None = None
    while found := store.followed(kind, status=status, session=session, after=last, limit=size):
        yield found
        last = found[-1].id
