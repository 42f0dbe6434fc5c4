"""Text for people: counts, wrapped lines, and text from a trace made safe for terminals and Markdown."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache

COMMENT_LIMIT = 65_536
"""characters that a comment on a pull request may have"""
NARROWEST, WIDEST = 40, 120
"""limits of the width of a report; longer lines of prose are hard to read"""
EMOJI_STYLE = "\ufe0f"
_NARROW = re.compile(r"[ -~\u00a1-\u00ac\u00ae-\u02ff⏎…–—‘’“”•→←↔✓✗·─━│╭├╰≠≤≥×]*")  # noqa: RUF001
"""characters of most texts, and those drawn here; each is one column wide"""
_WORD = re.compile(r"(\s*)(\S+)")
_OPENING = frozenset("([{<「『（【《〈〔“‘")  # noqa: RUF001
_CLOSING = frozenset(")]}>」』）】》〉〕”’,.!?:;、。，．！？：；…ー々")  # noqa: RUF001
"""a line does not begin with these, nor end with those before"""


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

    Text in a script without spaces is broken between two of its characters. `indent` starts the first line, `hanging`
    (by default the same) the others.
    """
    text, columns, hanging = printable(text), columns or terminal_width(), indent if hanging is None else hanging
    if not is_narrow(text):
        return list(_wrap_by_columns(text, columns, indent, hanging)) or [indent.rstrip()]
    lines = textwrap.wrap(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [indent.rstrip()]


def _wrap_by_columns(text: str, columns: int, indent: str, hanging: str) -> Iterator[str]:
    line, taken, is_empty = indent, width(indent), True
    for found in _WORD.finditer(text):
        gap, word = found[1], found[2]
        is_breakable = width(word) > columns - width(hanging) and word.count("/") < 2  # it may be a path
        for part in _parts(word) if is_breakable else (word,):
            wide = width(part)
            if not is_empty and taken + len(gap) + wide > columns:
                yield line
                line, taken, gap = hanging, width(hanging), ""
            line, taken, is_empty, gap = f"{line}{gap}{part}", taken + len(gap) + wide, False, ""
    if not is_empty:
        yield line


def _parts(word: str) -> Iterator[str]:
    """A word, cut before and after each wide character, but not beside punctuation that belongs to it."""
    first = 0
    for at in range(1, len(word)):
        before, after = word[at - 1], word[at]
        is_between = columns_of(before) == 2 or columns_of(after) == 2
        if is_between and columns_of(after) and before not in _OPENING and after not in _CLOSING:
            yield word[first:at]
            first = at
    yield word[first:]


def width(text: str) -> int:
    """The columns that a text takes in a terminal."""
    return len(text) if is_narrow(text) else sum(map(columns_of, text)) + text.count(EMOJI_STYLE)


def is_narrow(text: str) -> bool:
    """Whether each character is known to be one column wide."""
    return text.isascii() or _NARROW.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def columns_of(character: str) -> int:
    import unicodedata  # most texts do not need it

    if unicodedata.category(character) in ("Mn", "Me") or "\u1160" <= character <= "\u11ff":
        return 0  # combining marks, and the inner parts of a Hangul syllable
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


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
