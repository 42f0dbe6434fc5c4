"""A line that knows how wide it is, colours or not, so that it can be padded and put into columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from msgspec import Struct

from bylaw.inspect.report.text import width

LABEL = 9
"""columns of `assistant`"""
INDENT = LABEL + 2


class Style(Struct, frozen=True):
    fg: str | None = None
    bold: bool = False
    dim: bool = False

    def on(self, text: str) -> str:
        wanted: dict[str, Any] = {"fg": self.fg, "bold": self.bold or None, "dim": self.dim or None}
        return click.style(text, **{name: value for name, value in wanted.items() if value is not None})


PLAIN = Style()
BOLD = Style(bold=True)
DIM = Style(dim=True)
RED = Style(fg="red", bold=True)
GREEN = Style(fg="green")
CYAN = Style(fg="cyan", bold=True)
YELLOW = Style(fg="yellow")


class Line(Struct, frozen=True):
    text: str
    """with its colours"""
    width: int = 0

    def padded(self, columns: int) -> str:
        return self.text + " " * (columns - self.width)


class Block(Struct, frozen=True):
    """Lines that belong together: two blocks with one key stand side by side."""

    key: str
    lines: list[Line]


def line(*parts: tuple[str, Style]) -> Line:
    styled = (text if style is PLAIN or not text else style.on(text) for text, style in parts)
    return Line("".join(styled), sum(width(text) for text, _ in parts))


def labelled(label: str, label_style: Style, texts: Iterable[str], style: Style = PLAIN) -> list[Line]:
    """A label at the right of its column, and the texts beside it."""
    made = []
    for number, text in enumerate(texts):
        head = label if number == 0 else ""
        if not head and not text:
            made.append(Line(""))
            continue
        made.append(line((" " * (LABEL - width(head)), PLAIN), (head, label_style), ("  ", PLAIN), (text, style)))
    return made


def indented(lines: Iterable[Line], depth: int) -> list[Line]:
    """Below another agent."""
    if not depth:
        return list(lines)
    margin = DIM.on("│ " * depth)
    return [Line(margin + one.text, one.width + 2 * depth) for one in lines]
