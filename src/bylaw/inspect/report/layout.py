"""Layout: text, figures and JSON values of a trace are cleaned, measured, shortened and styled.

All of it is safe for a terminal. A `Line` knows its width without its colours, so it can be padded and put into
columns. An unknown figure is `–`, never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec
from msgspec import Struct

from bylaw.inspect.model import KnownSum
from bylaw.model.events import ToolCall, Usage
from bylaw.report.text import EMOJI_STYLE, columns_of, is_narrow, printable, width

_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\s*\n\s*")
_UNUSUAL_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_TAB = 4


def truncate(text: str, columns: int) -> str:
    """Cut to this width, with `…` at the end."""
    if width(text) <= columns:
        return text
    return _start(text, columns - 1) + "…" if columns > 0 else ""


def fit(text: str, columns: int) -> str:
    """A name on one line."""
    return truncate(
        printable(" ".join(text[: columns * 4].split())) + ("…" if len(text) > columns * 4 else ""), columns
    )


def middle(text: str, columns: int) -> str:
    """Cut in the middle: ids often differ at the end."""
    clean = printable(" ".join(text[:10_000].split()))
    if width(clean) <= columns:
        return clean
    half = (columns - 1) // 2
    return f"{_start(clean, half)}…{_start(clean[::-1], half)[::-1]}"


def fold(text: str, columns: int, lines: int, *, sized: bool = True) -> list[str]:
    """The beginning of a text with line breaks shown as `⏎`, and its length where it is cut."""
    start = text[: 2 * columns * lines + 80].strip()
    flat = _clean(_BREAKS.sub(" ⏎ ", _SPACES.sub(" ", start)))
    found = list(_break(flat, columns, most=lines + 1))
    if len(found) <= lines and len(start) == len(text.strip()):
        return found
    size = f"… ({len(text):,} characters)"
    if not sized or width(size) > columns // 3:
        size = "…"
    last = " ".join(found[lines - 1 :]) if len(found) >= lines else found.pop()
    room = columns - width(size)
    return [*found[: lines - 1], (last if width(last) <= room else _start(last, room)).rstrip() + size]


def one_line(text: str, columns: int) -> str:
    """The beginning of a text, with its spaces unchanged."""
    return truncate(_clean(text[: 4 * columns]), columns) if text else ""


def lay_out(text: str, columns: int) -> Iterator[str]:
    """A whole text, with lines broken where they are too long."""
    for line in text.replace("\r\n", "\n").split("\n"):
        clean = _clean(line.expandtabs(_TAB).rstrip())
        yield from _break(clean, columns) if clean else ("",)


def _clean(text: str) -> str:
    return printable(_UNUSUAL_SPACES.sub(" ", text))


def _start(text: str, columns: int) -> str:
    if is_narrow(text):
        return text[: max(columns, 0)]
    taken = 0
    for place, character in enumerate(text):
        taken += columns_of(character) + (character == EMOJI_STYLE)
        if taken > columns:
            return text[:place]
    return text


def _break(text: str, columns: int, most: int | None = None) -> Iterator[str]:
    """Pieces that fit, broken at a space if there is one in the last two thirds."""
    columns = max(columns, 2)  # the widest character
    at = number = 0
    while at < len(text) and (most is None or number < most):
        window = text[at : at + 4 * columns]
        piece = _start(window, columns)
        if len(piece) < len(text) - at:
            space = window.rfind(" ", 0, len(piece) + 1)
            if space > len(piece) // 3:
                piece = window[:space]
        yield piece.rstrip() or piece
        at += len(piece)
        while at < len(text) and text[at] == " ":
            at += 1
        number += 1


LABEL = 9
"""columns of `assistant`"""
INDENT = LABEL + 2


class Style(Struct, frozen=True):
    fg: str | None = None
    bold: bool = False
    dim: bool = False

    def on(self, text: str) -> str:
        return click.style(text, fg=self.fg, bold=self.bold or None, dim=self.dim or None)


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
    """Lines of one part of a turn. In columns, blocks with the same key stand side by side."""

    key: str
    lines: list[Line]


def line(*parts: tuple[str, Style]) -> Line:
    styled = (text if style is PLAIN or not text else style.on(text) for text, style in parts)
    return Line("".join(styled), sum(width(text) for text, _ in parts))


def label_lines(label: str, label_style: Style, texts: Iterable[str], style: Style = PLAIN) -> list[Line]:
    """A label, right-aligned in its column, with the texts beside it."""
    lines = []
    for number, text in enumerate(texts):
        head = label if number == 0 else ""
        if not head and not text:
            lines.append(Line(""))
            continue
        lines.append(line((" " * (LABEL - width(head)), PLAIN), (head, label_style), ("  ", PLAIN), (text, style)))
    return lines


def indent_lines(lines: Iterable[Line], depth: int) -> list[Line]:
    """Indented below another agent."""
    if not depth:
        return list(lines)
    margin = DIM.on("│ " * depth)
    return [Line(margin + one.text, one.width + 2 * depth) for one in lines]


UNKNOWN = "–"


def format_tokens(usage: Usage | None) -> str:
    if usage is None or usage.total is None:
        return f"{UNKNOWN} tok"
    if usage.input_tokens is None and usage.output_tokens is None:
        return f"{usage.total:,} tok"
    return f"{format_number(usage.input_tokens)} → {format_number(usage.output_tokens)} tok"


def format_number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def format_latency(milliseconds: float | None) -> str:
    if milliseconds is None:
        return f"{UNKNOWN} s"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms" if milliseconds >= 1 or milliseconds == 0 else "<1 ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else format_duration(milliseconds / 1000)


def format_duration(seconds: float) -> str:
    """`2m 13s`, `3h 05m`, `4d 02h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3_600}h {whole % 3_600 // 60:02}m"
    return f"{whole // 86_400:,}d {whole % 86_400 // 3_600:02}h"


def format_cost(dollars: float | None) -> str:
    if dollars is None:
        return f"$ {UNKNOWN}"
    if dollars == 0:
        return "$0"
    if dollars < 0.0001:
        return "<$0.0001"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"


def share_of_turns(known: KnownSum, turns: int) -> str:
    """The number of turns that a sum covers, if not all or none."""
    return "" if known.turns >= turns or not known.turns else f" (of {known.turns:,} of {turns:,} turns)"


_DEEPEST = 12
_MOST_REFORMATTED = 4 * 1024 * 1024


def preview(value: Any, limit: int) -> str:
    """JSON on one line, cut soon after `limit` characters, so that large values take no time."""
    written: list[str] = []
    room = limit
    for piece in _render_value(value, limit, 0):
        written.append(piece)
        room -= len(piece)
        if room < 0:
            return "".join(written) + "…"
    return "".join(written)


def _render_value(value: Any, limit: int, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield json.dumps(value[: limit + 1], ensure_ascii=False)
    elif isinstance(value, (dict, list, tuple)) and depth >= _DEEPEST:
        yield "…"
    elif isinstance(value, dict):
        yield "{"
        for number, (key, inner) in enumerate(value.items()):
            yield f"{', ' if number else ''}{json.dumps(str(key)[:limit], ensure_ascii=False)}: "
            yield from _render_value(inner, limit, depth + 1)
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "["
        for number, inner in enumerate(value):
            yield ", " if number else ""
            yield from _render_value(inner, limit, depth + 1)
        yield "]"
    else:
        yield json.dumps(value, default=str)


def call_preview(arguments: Any, raw: str | None, limit: int) -> str:
    """The arguments of a call on one line; `–` where none were recorded."""
    if isinstance(arguments, dict):
        written, room = [], limit
        for key, value in arguments.items():
            written.append(f"{str(key)[:limit]}={preview(value, room)}")
            room -= len(written[-1]) + 2
            if room < 0:
                written.append("…")
                break
        return ", ".join(written)
    if arguments is None:
        return "–" if raw is None else raw[:limit]
    return preview(arguments, limit)


def text_of(content: Any, limit: int) -> tuple[str, bool]:
    """A result as text: itself, its text blocks, or JSON; and whether that is all of it."""
    if isinstance(content, str):
        return content, True
    if isinstance(content, list) and content and all(map(_is_text, content)):
        return "\n".join(block["text"] for block in content), True
    return ("–" if content is None else preview(content, limit)), False


def pretty(value: Any) -> str:
    """The whole value: indented JSON, also where JSON was recorded as text; other text unchanged."""
    if isinstance(value, list) and value and all(map(_is_text, value)):
        value = "\n".join(block["text"] for block in value)
    if isinstance(value, str):
        return _reformat(value)
    if value is None:
        return "–"
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except RecursionError:
        return preview(value, _MOST_REFORMATTED)


def argument_lines(call: ToolCall) -> Iterator[str]:
    """One argument per line; a text of several lines keeps its lines."""
    arguments = call.raw_arguments if call.arguments is None else call.arguments
    if not isinstance(arguments, dict):
        yield from pretty(arguments).split("\n")
        return
    for key, value in arguments.items():
        if isinstance(value, str) and "\n" in value:
            yield f"{key}: |"
            yield from (f"  {line}" for line in value.split("\n"))
        else:
            shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else pretty(value)
            yield from f"{key}: {shown}".split("\n")


def _reformat(text: str) -> str:
    """Indent JSON without decoding it: numbers and repeated keys stay as recorded."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > _MOST_REFORMATTED:
        return text
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
