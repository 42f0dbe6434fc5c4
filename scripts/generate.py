"""Writes what is made from the code: the reference of commands, rule kinds and codes, and the schema for editors.

`python scripts/generate.py` writes it. With `--check` nothing is written, and the exit code is 1 if anything is out of
date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from bylaw.cli import COMMANDS, cli
from bylaw.lint import json_schema
from bylaw.lint.pages import codes, explain
from bylaw.rules.kinds import KINDS, kind_page

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
KIND_PAGES = REFERENCE / "kinds"
SCHEMA = ROOT / "src" / "bylaw" / "lint" / "schema" / "rules.schema.json"

BANNER = "<!-- Written by scripts/generate.py (`make docs`): change the code, not this page. -->\n\n"
WIDTH = 100
"""of help texts, whatever terminal this runs in"""


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = generated()
    changed = sorted(path for path, text in wanted.items() if _read(path) != text)
    left_over = sorted(set(KIND_PAGES.glob("*.md")) - wanted.keys())
    if arguments == ["--check"]:
        for path in (*changed, *left_over):
            print(f"out of date: {path.relative_to(ROOT)} (`make docs` mends it)", file=sys.stderr)
        return 1 if changed or left_over else 0
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], "utf-8")
    for path in left_over:
        path.unlink()
    return 0


def generated() -> dict[Path, str]:
    """Every generated file, and what it should hold."""
    return {
        REFERENCE / "cli.md": BANNER + "\n".join(_commands()),
        REFERENCE / "codes.md": BANNER + "\n".join(_codes()),
        REFERENCE / "kinds.md": BANNER + "\n".join(_kinds()),
        **{KIND_PAGES / f"{name}.md": BANNER + _kind(name) for name in KINDS},
        SCHEMA: json_schema.render(),
    }


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "What `--help` prints.\n"
    top = click.Context(cli, info_name="bylaw", terminal_width=WIDTH, **cli.context_settings)
    yield _help("bylaw", cli, top)
    for name in sorted(COMMANDS):
        command = cli.get_command(top, name)
        assert command is not None
        yield from _with_its_own(f"bylaw {name}", command, click.Context(command, info_name=name, parent=top))


def _with_its_own(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    """A command's help, and that of the commands below it."""
    yield _help(title, command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            below = click.Context(inner, info_name=name, parent=context)
            yield from _with_its_own(f"{title} {name}", inner, below)


def _help(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```text\n{command.get_help(context)}\n```\n"


def _kinds() -> Iterator[str]:
    yield "# Rule kinds\n"
    yield "One page each. What they mean to the corner is in [semantics](semantics.md).\n"
    yield "| kind | holds when |\n|---|---|"
    yield from (f"| [`{name}`](kinds/{name}.md) | {_lower(kind.summary)} |" for name, kind in sorted(KINDS.items()))
    yield ""


def _kind(name: str) -> str:
    return f"{kind_page(name)}\nIts corners, with examples: [semantics](../semantics.md#{name}).\n"


def _codes() -> Iterator[str]:
    yield "# Codes\n"
    yield "What is wrong with a file of yours has a code. `bylaw explain CODE` prints the same text.\n"
    for code in codes():
        page = explain(code)
        assert page is not None
        yield f"#{page.rstrip()}\n"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _read(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
