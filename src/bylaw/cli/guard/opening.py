"""The store that an operator's command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bylaw.adapters.stores import SqliteStore

STORE = click.option("--store", required=True, metavar="FILE", help="The guard's SQLite file; it must exist.")


@contextmanager
def opened(path: str) -> Iterator[SqliteStore]:
    """A store that is there already: a mistyped name must not become a new and empty one."""
    from bylaw.adapters.stores import SqliteStore

    if not Path(path).is_file():
        raise click.UsageError(f"there is no store `{path}`")
    store = SqliteStore(path)
    try:
        yield store
    finally:
        store.close()
