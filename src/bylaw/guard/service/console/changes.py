"""What differs between two calls, and between two versions of a rule file, for people to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias

from msgspec import Struct

MOST_ROWS = 200
MOST_DEPTH = 8
LONGEST_VALUE = 2_000
MOST_LINES = 2_000
"""of a rule file: beyond that a diff would take too long"""
CONTEXT = 3
MOST_RULE = 40
"""lines of one rule"""

ChangeKind: TypeAlias = Literal["same", "changed", "added", "removed", "only"]


class ArgumentRow(Struct, frozen=True):
    """One value of a call, beside the value that it had in the call before."""

    path: str
    kind: ChangeKind
    """`only`: there is no call to compare it with"""
    now: str | None
    before: str | None = None


class DiffLine(Struct, frozen=True):
    kind: Literal["same", "added", "removed", "gap"]
    text: str
    old: int | None = None
    new: int | None = None


def argument_rows(now: Any, before: Any = None, *, compare: bool = False) -> list[ArgumentRow]:
    """The arguments of a call by their paths, those that changed first. At most `MOST_ROWS`."""
    new = dict(_leaves(now, "", 0))
    if not compare:
        rows = [ArgumentRow(path, "only", value) for path, value in new.items()]
        return rows[:MOST_ROWS]
    old = dict(_leaves(before, "", 0))
    rows = [_row(path, new.get(path), old.get(path)) for path in [*new, *(path for path in old if path not in new)]]
    rows.sort(key=lambda row: row.kind == "same")
    return rows[:MOST_ROWS]


def _row(path: str, now: str | None, before: str | None) -> ArgumentRow:
    if now is None:
        return ArgumentRow(path, "removed", None, before)
    if before is None:
        return ArgumentRow(path, "added", now)
    return ArgumentRow(path, "same" if now == before else "changed", now, before)


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value and depth < MOST_DEPTH:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif (
        isinstance(value, list) and value and depth < MOST_DEPTH and any(isinstance(one, dict | list) for one in value)
    ):
        for number, inner in enumerate(value[:MOST_ROWS]):
            yield from _leaves(inner, f"{path}.{number}" if path else str(number), depth + 1)
    elif path or value not in ({}, None):
        yield path or "(all)", plain_value(value)


def plain_value(value: Any) -> str:
    """A value as one line of JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text):,} characters)"


def diff_lines(before: str, after: str, *, context: int = CONTEXT) -> list[DiffLine]:
    """The lines that differ, with some around them; a `gap` stands for lines that are left out. Empty if equal."""
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return []
    if max(len(old), len(new)) > MOST_LINES:
        return [
            DiffLine("gap", f"more than {MOST_LINES:,} lines: the versions differ, and are too long to compare here")
        ]
    lines: list[DiffLine] = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(context):
        if lines or group[0][1] > 0:
            lines.append(DiffLine("gap", "…"))
        for tag, old_from, old_to, new_from, new_to in group:
            lines += _block(tag, old, new, (old_from, old_to, new_from, new_to))
    return lines


def rule_lines(text: str, first: int, last: int | None = None) -> list[tuple[int, str]]:
    """The lines of the rule that begins at line `first`, with their numbers and without the indentation of the first.
    Without its end, it goes on as long as lines are indented deeper than that."""
    lines = text.splitlines()
    if not 1 <= first <= len(lines):
        return []
    start = _indent(lines[first - 1])
    if last is None or last <= first:
        last = first
        while last < len(lines) and (not lines[last].strip() or _indent(lines[last]) > start):
            last += 1
        while last > first and not lines[last - 1].strip():
            last -= 1
    shown = range(first, min(last, first + MOST_RULE, len(lines)) + 1)
    return [(number, lines[number - 1][min(start, _indent(lines[number - 1])) :]) for number in shown]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block(tag: str, old: Sequence[str], new: Sequence[str], span: tuple[int, int, int, int]) -> Iterator[DiffLine]:
    old_from, old_to, new_from, new_to = span
    if tag == "equal":
        for offset, text in enumerate(old[old_from:old_to]):
            yield DiffLine("same", text, old_from + offset + 1, new_from + offset + 1)
        return
    for number in range(old_from, old_to):
        yield DiffLine("removed", old[number], old=number + 1)
    for number in range(new_from, new_to):
        yield DiffLine("added", new[number], new=number + 1)
