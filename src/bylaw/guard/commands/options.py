"""Options that several commands of the guard share, and what they open: the store, the rules, times and schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from bylaw.guard.stores import SqliteStore
    from bylaw.model.guard_policy import GuardPolicy

T = TypeVar("T")

MOST_BYTES = 16 << 20
"""of a JSON value: an attempt, a line of the history, the schemas"""

STORE = click.option("--store", required=True, metavar="FILE", help="The guard's SQLite file; it must exist.")
LIMIT = click.option(
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="List at most so many.",
)
POLICY = click.option("--policy", "-p", "policies", multiple=True, required=True, metavar="FILE", help="Guard rules.")
VERSION = click.option("--version", metavar="NAME", help="Which version of an agent manifest with several.")
TOOLS = click.option("--tools", metavar="FILE", help="JSON Schemas of the tools' arguments, by tool name.")
NOTE = click.option("--note", metavar="TEXT", help="Stored with the change.")
JSON_LINES = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")


class BadInput(click.ClickException):
    """A file or standard input does not hold what the command needs."""


@contextmanager
def open_store(path: str) -> Iterator[SqliteStore]:
    """An existing store: a mistyped name must not create a new one."""
    from bylaw.guard.stores import SqliteStore

    if not Path(path).is_file():
        raise click.UsageError(f"there is no store `{path}`")
    store = SqliteStore(path)
    try:
        yield store
    finally:
        store.close()


def load_rules(policies: Sequence[str], version: str | None) -> list[GuardPolicy]:
    """Raises InputError."""
    from bylaw.guard.policies import load_policies, select_version

    return select_version([policy for path in policies for policy in load_policies(path)], version)


def cut_to_limit(limit: int, found: Sequence[T]) -> Sequence[T]:
    """`found` has up to one more than the limit, to notice whether some are left out."""
    if len(found) > limit:
        click.echo(f"more than {limit:,}: --limit shows the rest", err=True)
    return found[:limit]


def parse_time(option: str, text: str | None) -> float | None:
    from bylaw.model.events import seconds

    if text is None:
        return None
    try:
        at: float | None = float(text)
    except ValueError:
        at = seconds(text)
    if at is None or not abs(at) < float("inf"):
        raise click.UsageError(f"{option} takes seconds or an ISO 8601 time, and not `{text}`")
    return at


def parse_json(text: str, where: str) -> Any:
    if len(text) > MOST_BYTES:
        raise BadInput(f"{where}: longer than {MOST_BYTES:,} characters")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise BadInput(f"{where}: not JSON: {problem}") from None


def read_schemas(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        value = parse_json(Path(path).read_text("utf-8"), path)
    except OSError as problem:
        raise BadInput(f"{path}: {problem.strerror}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: must be an object from tool name to JSON Schema")
    return value
