"""Writes the generated files: the reference of commands, endpoints, rule kinds and codes, the schema for editors, the
picture.

`python scripts/generate.py` writes it. With `--check` nothing is written, and the exit code is 1 if anything is out of
date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import endpoints
import picture

from bylaw.cli import COMMANDS, cli
from bylaw.lint import json_schema
from bylaw.lint.commands import codes, read_page
from bylaw.rules.kinds import KINDS
from bylaw.traces import FORMATS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
KIND_PAGES = REFERENCE / "kinds"
TRACE_PAGE = REFERENCE / "trace-format.md"
PICTURE = ROOT / "docs" / "pictures" / "check.svg"
SCHEMA = ROOT / "src" / "bylaw" / "lint" / "schema" / "rules.schema.json"

BANNER = "<!-- Written by scripts/generate.py (`make docs`): change the code, not this page. -->\n\n"
WIDTH = 100
"""of help texts, whatever terminal this runs in"""


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    files = generated()
    changed = sorted(path for path, text in files.items() if _read(path) != text)
    stale = sorted(set(KIND_PAGES.glob("*.md")) - files.keys())
    if arguments == ["--check"]:
        for path in (*changed, *stale):
            print(f"out of date: {path.relative_to(ROOT)} (run `make docs`)", file=sys.stderr)
        return 1 if changed or stale else 0
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], "utf-8")
    for path in stale:
        path.unlink()
    return 0


def generated() -> dict[Path, str]:
    """Every generated file, with its content."""
    return {
        REFERENCE / "cli.md": BANNER + "\n".join(_commands()),
        REFERENCE / "codes.md": BANNER + "\n".join(_codes()),
        REFERENCE / "service.md": BANNER + endpoints.page(),
        REFERENCE / "kinds.md": BANNER + "\n".join(_kinds()),
        **{KIND_PAGES / f"{name}.md": BANNER + _kind(name) for name in KINDS},
        TRACE_PAGE: _with_formats(TRACE_PAGE.read_text("utf-8")),
        SCHEMA: json_schema.render(),
        PICTURE: picture.draw(),
    }


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "The output of `--help` for every command. [Shell completion](../completion.md) completes flags and values.\n"
    yield (
        "Colours are printed on a terminal only. `--color` and `--no-color` decide, before or after the sub-command.\n"
        "Else `NO_COLOR` forbids colours, `FORCE_COLOR` forces them, and `TERM=dumb` forbids them. Long work shows\n"
        "its progress on standard error, if that is a terminal. Machine formats such as JSON have neither.\n"
    )
    top = click.Context(cli, info_name="bylaw", terminal_width=WIDTH, **cli.context_settings)
    yield _help("bylaw", cli, top)
    for name in sorted(COMMANDS):
        command = cli.get_command(top, name)
        assert command is not None
        yield from _help_pages(f"bylaw {name}", command, click.Context(command, info_name=name, parent=top))


def _help_pages(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    """A command's help, and that of the commands below it."""
    yield _help(title, command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            below = click.Context(inner, info_name=name, parent=context)
            yield from _help_pages(f"{title} {name}", inner, below)


def _help(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```text\n{command.get_help(context)}\n```\n"


def _kinds() -> Iterator[str]:
    yield "# Rule kinds\n"
    yield "One page for each kind. [Semantics](semantics.md) defines the edge cases.\n"
    yield "| kind | holds when |\n|---|---|"
    yield from (f"| [`{name}`](kinds/{name}.md) | {_lower(kind.summary)} |" for name, kind in sorted(KINDS.items()))
    yield ""


def _kind(name: str) -> str:
    """The page of a kind, with a link to its edge cases where there are some."""
    page = KINDS[name].page()
    headings = re.findall(r"^#+ (\w+)$", (REFERENCE / "semantics.md").read_text("utf-8"), re.MULTILINE)
    return f"{page}\nEdge cases, with examples: [semantics](../semantics.md#{name}).\n" if name in headings else page


def _codes() -> Iterator[str]:
    yield "# Codes\n"
    yield (
        "Every problem that Bylaw finds in a file or on the command line has a code, shown in brackets: "
        "`error[unknown-key]`. A problem is an error, and the command ends with exit code 2, unless its section says "
        "that it is a warning. `bylaw explain CODE` prints the section of a code.\n"
    )
    for code in codes():
        page = read_page(code)
        assert page is not None
        yield f"#{page.rstrip()}\n"


def _with_formats(page: str) -> str:
    """The page with its table of trace formats up to date; the rest of it is written by hand."""
    rows = "".join(f"| `{name}` | {description} |\n" for name, description in FORMATS.items())
    header = re.escape("| format | content |\n|---|---|\n")
    text, tables = re.subn(f"({header})(?:\\|.*\\n)+", lambda table: table[1] + rows, page)
    assert tables == 1, f"{tables} tables of trace formats in trace-format.md"
    return text


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _read(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
