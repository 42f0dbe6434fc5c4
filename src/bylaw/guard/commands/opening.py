"""The store that an operator's command works on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from bylaw.guard.stores import SqliteStore

T = TypeVar("T")

STORE = click.option("--store", required=True, metavar="FILE", help="The guard's SQLite file; it must exist.")

LIMIT = click.option(
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="List no more than these.",
)


def within(limit: int, found: Sequence[T]) -> Sequence[T]:
    """Of `limit` and one more: what is left out is told."""
    if len(found) > limit:
        click.echo(f"more than {limit:,}: --limit shows the rest", err=True)
    return found[:limit]


@contextmanager
def opened(path: str) -> Iterator[SqliteStore]:
    """A store that is there already: a mistyped name must not become a new and empty one."""
    from bylaw.guard.stores import SqliteStore

    if not Path(path).is_file():
        raise click.UsageError(f"there is no store `{path}`")
    store = SqliteStore(path)
    try:
        yield store
    finally:
        store.close()
