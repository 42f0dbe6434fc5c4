"""Text out of a trace, safe and measured: cleaned, folded to a few lines, or laid out whole."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from bylaw.report.text import printable

_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\s*\n\s*")
_NO_PLAIN_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_NARROW = re.compile(r"[ -~\u00a1-\u00ac\u00ae-\u02ff⏎…–—‘’“”•→←↔✗·─━│╭├╰≠]*")  # noqa: RUF001
"""what most texts are made of, and what is drawn here: one column each"""
_EMOJI_STYLE = "\ufe0f"
_TAB = 4


def width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    return sum(map(_columns, text)) + text.count(_EMOJI_STYLE)


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me") or "\u1160" <= character <= "\u11ff":
        return 0  # marks over the letter before, and the inner parts of a Hangul syllable
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """At most this wide, with `…` where something is left out."""
    if width(text) <= columns:
        return text
    return _start(text, columns - 1) + "…" if columns > 0 else ""


def fit(text: str, columns: int) -> str:
    """A name or the like on one line."""
    return cut(printable(" ".join(text[: columns * 4].split())) + ("…" if len(text) > columns * 4 else ""), columns)


def middle(text: str, columns: int) -> str:
    """A long id keeps both ends: where it differs from others is often the last of it."""
    clean = printable(" ".join(text[:10_000].split()))
    if width(clean) <= columns:
        return clean
    half = (columns - 1) // 2
    return f"{_start(clean, half)}…{_start(clean[::-1], half)[::-1]}"


def fold(text: str, columns: int, lines: int, *, sized: bool = True) -> list[str]:
    """The beginning of a text, its line breaks shown as `⏎`, and how long it is where it does not fit."""
    start = text[: 2 * columns * lines + 80].strip()
    flat = _clean(_BREAKS.sub(" ⏎ ", _SPACES.sub(" ", start)))
    found = list(_broken(flat, columns, most=lines + 1))
    if len(found) <= lines and len(start) == len(text.strip()):
        return found
    size = f"… ({len(text):,} characters)"
    if not sized or width(size) > columns // 3:
        size = "…"
    last = " ".join(found[lines - 1 :]) if len(found) >= lines else found.pop()
    room = columns - width(size)
    return [*found[: lines - 1], (last if width(last) <= room else _start(last, room)).rstrip() + size]


def one_line(text: str, columns: int) -> str:
    """The beginning of a text with its spaces as they are: for what is quoted."""
    return cut(_clean(text[: 4 * columns]), columns) if text else ""


def lay_out(text: str, columns: int) -> Iterator[str]:
    """All of a text, line by line, each broken where it has to be."""
    for line in text.replace("\r\n", "\n").split("\n"):
        clean = _clean(line.expandtabs(_TAB).rstrip())
        yield from _broken(clean, columns) if clean else ("",)


def _clean(text: str) -> str:
    return printable(_NO_PLAIN_SPACES.sub(" ", text))


def _start(text: str, columns: int) -> str:
    if text.isascii() or _NARROW.fullmatch(text):
        return text[: max(columns, 0)]
    taken = 0
    for place, character in enumerate(text):
        taken += _columns(character) + (character == _EMOJI_STYLE)
        if taken > columns:
            return text[:place]
    return text


def _broken(text: str, columns: int, most: int | None = None) -> Iterator[str]:
    """Pieces that fit, broken at a space where there is one in the last two thirds."""
    columns = max(columns, 2)  # the widest character
    at = given = 0
    while at < len(text) and (most is None or given < most):
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
        given += 1
