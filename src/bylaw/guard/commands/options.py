"""Options that several commands of the guard share, and what they open: the store, the rules, times and schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from bylaw.guard.policies import VersionChoice
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
    help="List at most N.",
)
POLICY = click.option("--policy", "-p", "policies", multiple=True, required=True, metavar="FILE", help="Guard rules.")


def _parse_versions(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> VersionChoice:
    pairs = [text.partition("=") for text in texts]
    if len(texts) == 1 and not pairs[0][1]:
        return texts[0]
    if not all(agent and name for agent, _, name in pairs):
        raise click.BadParameter("pass one NAME for all agents, or AGENT=NAME for each")
    return {agent: name for agent, _, name in pairs} or None


def _parse_inputs(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(key and sign for key, sign, _ in pairs):
        raise click.BadParameter("write it as KEY=VALUE")
    return {key: value for key, _, value in pairs}


VERSION = click.option(
    "--version",
    multiple=True,
    callback=_parse_versions,
    metavar="[AGENT=]NAME",
    help="Which version in an agent manifest (default: the deployed one).",
)
INPUT = click.option(
    "--input",
    "inputs",
    multiple=True,
    callback=_parse_inputs,
    metavar="KEY=VALUE",
    help="Value of {{inputs.KEY}} in the guard file.",
)


def _parse_mode(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    from bylaw.guard.policies import known_mode

    if text is None:
        return None
    try:
        return known_mode(text)
    except ValueError:
        raise click.BadParameter(f"`{text}` is not one of `request`, `hitl`, `sub_agent`") from None


MODE = click.option(
    "--mode", callback=_parse_mode, metavar="[request|hitl|sub_agent]", help="Mode for rules that do not set one."
)
TOOLS = click.option("--tools", metavar="FILE", help="JSON Schemas of the tools' arguments, by tool name.")
NOTE = click.option("--note", metavar="TEXT", help="Stored with the change.")
JSON_LINES = click.option("--json", "is_json", is_flag=True, help="Print one JSON object per line.")


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


def load_rules(
    policies: Sequence[str], version: VersionChoice, inputs: Mapping[str, str] | None = None
) -> list[GuardPolicy]:
    """Raises InputError."""
    from bylaw.guard.policies import load_policies, select_version

    return select_version([one for path in policies for one in load_policies(path, inputs=inputs)], version)


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
    from bylaw.traces.records.jsontext import RepeatedKey, loads_strictly

    try:
        return loads_strictly(text)
    except RepeatedKey as problem:  # other programs take the first of the two, so no rule can judge the value
        raise BadInput(f"{where}: {problem}") from None
    except RecursionError:
        raise BadInput(f"{where}: brackets are nested too deeply") from None
    except ValueError as problem:
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
