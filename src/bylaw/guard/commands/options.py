"""Options that several commands of the guard share, and loaders for them: the store, the rules, times and schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bylaw.report.command_line import input_option, version_option

if TYPE_CHECKING:
    from bylaw.guard.policies import VersionChoice
    from bylaw.guard.stores import SqliteStore
    from bylaw.model.rule import GuardPolicy
    from bylaw.text.redaction.redactor import Redaction

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

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
POLICY = click.option(
    "--policy", "-p", "policies", multiple=True, required=True, metavar="FILE", help="Guard rules; can be repeated."
)
VERSION = version_option
INPUT = input_option


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


def redaction_options(command: F) -> F:
    """What is removed from values before they are written: the arguments of `make_redaction`."""
    options = (
        ("--redact", "classes", "CLASS", "Also redact this class: `iban`, `phone`, `email`, or `all`."),
        ("--pattern", "patterns", "NAME=REGEX", "Also redact this RE2 pattern."),
        ("--mask", "mask", "PATH", "Always redact the value at this path in arguments and results."),
        ("--keep", "keep", "PATH", "Never redact the value at this path."),
    )
    for flag, name, metavar, text in reversed(options):
        command = click.option(flag, name, multiple=True, metavar=metavar, help=text)(command)
    return command


def make_redaction(
    store: str | None, *, classes: Sequence[str], patterns: Sequence[str], mask: Sequence[str], keep: Sequence[str]
) -> Redaction:
    """Raises UsageError for options that cannot be used, or that have no effect."""
    from bylaw.text.redaction.redactor import CLASSES, BadPattern, Redaction, Redactor

    default = Redaction()
    if store is None and (classes or patterns or mask or keep):
        raise click.UsageError("--redact, --pattern, --mask and --keep have no effect without --store")
    if unnamed := [text for text in patterns if not text.partition("=")[0] or "=" not in text]:
        raise click.UsageError(f"--pattern `{unnamed[0]}`: expected NAME=REGEX")
    wanted = CLASSES if "all" in classes else tuple(dict.fromkeys((*default.classes, *classes)))
    named = {name: pattern for name, _, pattern in (text.partition("=") for text in patterns)}
    with usage_errors(ValueError, BadPattern):
        redaction = Redaction(classes=wanted, patterns=named, mask=mask, keep=keep)
        Redactor(redaction)
    return redaction


@contextmanager
def usage_errors(*kinds: type[Exception], path: str | None = None) -> Iterator[None]:
    """Ends the command with the problem of its options, or of the file at `path`."""
    try:
        yield
    except kinds as problem:
        why = f"{path}: {problem.strerror}" if path is not None and isinstance(problem, OSError) else str(problem)
        raise click.UsageError(why) from None


class BadInput(click.ClickException):
    """A file or standard input lacks the data that the command needs."""


@contextmanager
def open_store(path: str, *, read_only: bool = False) -> Iterator[SqliteStore]:
    """An existing store: a mistyped name, or the name of an empty file, must not create a new one."""
    from bylaw.guard.stores import SqliteStore

    if Path(path).is_dir():
        raise click.UsageError(f"`{path}` is a folder: name the file of the store")
    if not Path(path).is_file():
        raise click.UsageError(f"there is no store `{path}`")
    store = SqliteStore(path, read_only=read_only, create=False)
    try:
        yield store
    finally:
        store.close()


ALWAYS_PRINTED = frozenset(("glob-as-name", "guard-scope", "unlikely-tool"))
"""warnings that every command prints; `bylaw lint` prints the others too"""


def load_rules(
    policies: Sequence[str], version: VersionChoice, inputs: Mapping[str, str] | None = None
) -> list[GuardPolicy]:
    """Warnings about rules that do not do what they say are printed to stderr. Raises InputError."""
    from bylaw.guard.policies import select_version
    from bylaw.report.diagnostics import print_diagnostics
    from bylaw.rules import load_guard

    loaded = [load_guard(path, inputs=inputs) for path in policies]
    problems = [problem for guards in loaded for problem in guards.diagnostics]
    print_diagnostics([problem for problem in problems if problem.code in ALWAYS_PRINTED])
    return select_version([policy for guards in loaded for policy in guards.policies], version)


def cut_to_limit(limit: int, found: Sequence[T]) -> Sequence[T]:
    """`found` has up to one more than the limit, to notice whether some are left out."""
    if len(found) > limit:
        click.echo(f"more than {limit:,}: --limit shows the rest", err=True)
    return found[:limit]


def parse_since(text: str | None) -> float | None:
    from bylaw.model.events import seconds

    if text is None:
        return None
    try:
        at: float | None = float(text)
    except ValueError:
        at = seconds(text)
    if at is None or not abs(at) < float("inf"):
        raise click.UsageError(f"--since takes seconds or an ISO 8601 time, and not `{text}`")
    return at


def parse_json(text: str, where: str) -> Any:
    if len(text) > MOST_BYTES:
        raise BadInput(f"{where}: longer than {MOST_BYTES:,} characters")
    from bylaw.text.repeated_keys import RepeatedKey, loads_strictly

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
    from bylaw.rules.files import read_text_file

    value = parse_json(read_text_file(Path(path), path), path)
    if not isinstance(value, dict):
        raise BadInput(f"{path}: must be an object from tool name to JSON Schema")
    return value
