"""Text for people: counts, wrapped lines, and text from a trace made safe for terminals and Markdown."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator

COMMENT_LIMIT = 65_536
"""characters that a comment on a pull request may have"""
NARROWEST, WIDEST = 40, 120
"""limits of the width of a report; longer lines of prose are hard to read"""


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def printable(text: str) -> str:
    """Show control and invisible characters instead of sending them: text from a trace must not steer the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def terminal_width(widest: int = WIDEST) -> int:
    """The columns of a report: those of the terminal or of COLUMNS, and 80 where the output is not a terminal."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width and sys.stdout.isatty():
        with contextlib.suppress(OSError, ValueError):  # shutil.get_terminal_size, without the import of shutil
            width = os.get_terminal_size(sys.stdout.fileno()).columns
    return min(max(width or 80, NARROWEST), widest)


def wrap(text: str, *, indent: str = "", hanging: str | None = None, columns: int | None = None) -> list[str]:
    """Lines that fit, broken between words; a word that is too long, such as a path, is not broken.

    `indent` starts the first line, `hanging` (by default the same) the others.
    """
    lines = textwrap.wrap(
        printable(text),
        columns or terminal_width(),
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [indent.rstrip()]


# -- Markdown ----------------------------------------------------------------------------------------------------------

_SPECIAL = str.maketrans({**{c: f"\\{c}" for c in "\\`*_[]#|~"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"})
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def inline_code(text: str) -> str:
    """Inline code with a fence that no backtick inside can close."""
    flat = "".join(c if c.isprintable() else " " for c in text)
    longest = max((len(run) for run in "".join(c if c == "`" else " " for c in flat).split()), default=0)
    fence = "`" * (longest + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def code_spans(line: str) -> Iterator[tuple[str, bool]]:
    """The parts of a line, each with whether it is code as `inline_code` writes it."""
    at = 0
    for found in _CODE_SPAN.finditer(line):
        yield line[at : found.start()], False
        is_padded = found[2].startswith(" ") and found[2].endswith(" ") and "`" in found[2]
        yield found[2][1:-1] if is_padded else found[2], True
        at = found.end()
    yield line[at:], False


def escape_markdown(text: str) -> str:
    """Text from a trace must not become markup, a link or a mention."""
    return "".join(c if c.isprintable() else " " for c in text).translate(_SPECIAL)
