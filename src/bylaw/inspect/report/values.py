"""JSON values for people: one line that ends in time, or all of it, indented."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from bylaw.model.events import ToolCall

_DEEPEST = 12
_MOST_REFORMATTED = 4 * 1024 * 1024


def preview(value: Any, limit: int) -> str:
    """JSON on one line. Stops soon after `limit` characters, whatever the size of the value."""
    written: list[str] = []
    room = limit
    for piece in _pieces(value, limit, 0):
        written.append(piece)
        room -= len(piece)
        if room < 0:
            return "".join(written) + "…"
    return "".join(written)


def _pieces(value: Any, limit: int, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield json.dumps(value[: limit + 1], ensure_ascii=False)
    elif isinstance(value, (dict, list, tuple)) and depth >= _DEEPEST:
        yield "…"
    elif isinstance(value, dict):
        yield "{"
        for number, (key, inner) in enumerate(value.items()):
            yield f"{', ' if number else ''}{json.dumps(str(key)[:limit], ensure_ascii=False)}: "
            yield from _pieces(inner, limit, depth + 1)
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "["
        for number, inner in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(inner, limit, depth + 1)
        yield "]"
    else:
        yield json.dumps(value, default=str)


def call_preview(arguments: Any, raw: str | None, limit: int) -> str:
    """What stands between the brackets of a call; `–` where nothing readable was recorded."""
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
    """What a tool returned, as text: its own, that of its text blocks, or JSON; and whether that is all of it."""
    if isinstance(content, str):
        return content, True
    if isinstance(content, list) and content and all(map(_is_text, content)):
        return "\n".join(block["text"] for block in content), True
    return ("–" if content is None else preview(content, limit)), False


def pretty(value: Any) -> str:
    """All of it: JSON indented, also where it was recorded as text; other text as it is."""
    if isinstance(value, list) and value and all(map(_is_text, value)):
        value = "\n".join(block["text"] for block in value)
    if isinstance(value, str):
        return _reformatted(value)
    if value is None:
        return "–"
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except RecursionError:
        return preview(value, _MOST_REFORMATTED)


def argument_lines(call: ToolCall) -> Iterator[str]:
    """One argument after the other; a text of several lines keeps them."""
    given = call.raw_arguments if call.arguments is None else call.arguments
    if not isinstance(given, dict):
        yield from pretty(given).split("\n")
        return
    for key, value in given.items():
        if isinstance(value, str) and "\n" in value:
            yield f"{key}: |"
            yield from (f"  {line}" for line in value.split("\n"))
        else:
            shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else pretty(value)
            yield from f"{key}: {shown}".split("\n")


def _reformatted(text: str) -> str:
    """By its letters, not by its values: numbers and doubled keys stay as they were recorded."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > _MOST_REFORMATTED:
        return text
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
