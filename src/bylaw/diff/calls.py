"""How a session calls its tools: how often, with which arguments, where their values come from, and in which order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Any

from bylaw.diff.columns import Column
from bylaw.model.canonical import canonical_json
from bylaw.text.decision_words import one_sided, sides_taken
from bylaw.text.decisions import decisions, is_prose, quantities
from bylaw.traces.comparison.recording import Context, Recording, arguments

_MOST_VALUES = 2_000
"""argument values of a session that are columns"""
_LONG_VALUE = 200
"""characters of an argument value; longer ones are prose and belong to no column"""
_MOST_LISTED = 8
"""elements of a list that is a value as a whole"""
_MOST_PROSE = 20_000
"""characters of an argument in which opposites are looked for"""
_MOST_ORDERED = 12
"""tools of a session, the first ones it calls, whose order is a column for each two of them"""
_MOST_PLACES = 200
"""places that are tried for a short value, which may be a part of many words"""
_WORD_BEFORE = re.compile(r"(\w+)[^\w\n]*$")
_DIGITS = re.compile(r"\d+")


def call_figures(recording: Recording, tools: Collection[str]) -> dict[Column, float]:
    """How these tools are called, and nothing else."""
    found: defaultdict[Column, float] = defaultdict(float)
    for column, amount in read_calls(recording):
        if column.subject in tools and column.what != "order":
            found[column] += amount
    return dict(found)


def read_calls(recording: Recording) -> Iterator[tuple[Column, float]]:
    """Columns with amounts to add up."""
    context = recording.context
    values = 0
    first: dict[str, int] = {}
    for place, (step, end) in enumerate(zip(recording.steps, context.ends, strict=False)):
        for call, shape in zip(step.response.tool_calls, step.shape, strict=True):
            first.setdefault(call.name, place)
            yield Column("trajectory", "calls", call.name), 1
            yield Column("trajectory", "argument names", call.name, shape), 1
            strange = 0
            for path, leaf in _leaves(arguments(call)) if values < _MOST_VALUES else ():
                values += 1
                if isinstance(leaf, str) and " " in leaf:
                    yield from _opposites(call.name, path, leaf)
                if isinstance(leaf, str) and is_prose(leaf):
                    yield from _decided(call.name, path, leaf)
                    strange += _invented(leaf, context, end) if context.text else 0
                    continue
                value = canonical_json(leaf).decode(errors="replace")
                if len(value) > _LONG_VALUE:
                    continue
                yield Column("trajectory", "argument values", call.name, f"{path}={value}"), 1
                if isinstance(leaf, list):
                    if sources := _sources(leaf, context, end):
                        yield Column("trajectory", "argument source", call.name, f"{path}={sources}"), 1
                    continue
                plain = value.strip('"').lower()
                if context.text and plain not in ("true", "false", "null", ""):
                    source, is_strange = _source(plain, context, end)
                    strange += is_strange
                    if source:
                        yield Column("trajectory", "argument source", call.name, f"{path}={source}"), 1
            if context.text:
                yield Column("trajectory", "values from nowhere", call.name), strange
    for tool in first:  # apart from how often: in a sum of counts, sessions with many calls hide those with none
        yield Column("trajectory", "called", tool), 1
    for one, other in combinations(sorted(list(first)[:_MOST_ORDERED]), 2):
        if first[one] != first[other]:
            yield Column("trajectory", "order", one, other), 1 if first[one] < first[other] else -1


def _leaves(given: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The argument's leaves, each with its path, and short lists of leaves as a whole: their order may decide."""
    if isinstance(given, dict) and depth < 5:
        for key, value in given.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(given, list) and depth < 5:
        for value in given[:50]:
            yield from _leaves(value, f"{path}.*", depth + 1)
        if 1 < len(given) <= _MOST_LISTED and not any(isinstance(value, dict | list) for value in given):
            yield path, given
    else:
        yield path, given


def _decided(tool: str, path: str, text: str) -> Iterator[tuple[Column, float]]:
    """What an argument in prose decides. Its words are no columns."""
    found = decisions(text)
    yield Column("trajectory", "argument negation", tool, path), float(found.is_negated)
    for kind, spelling in found.facts:
        what = "argument name" if kind in ("name", "weekday", "year") else "argument fact"
        yield Column("trajectory", what, tool, f"{path}={kind} {spelling}"), 1


def _opposites(tool: str, path: str, text: str) -> Iterator[tuple[Column, float]]:
    """Which side of each pair of opposites an argument of several words takes."""
    for pair, side in one_sided(sides_taken(text[:_MOST_PROSE])):
        yield (
            Column("trajectory", "argument opposite", tool, f"{path}={pair}"),
            1 if pair.startswith(f"{side} ") else -1,
        )


def _invented(text: str, context: Context, end: int) -> int:
    """How many numbers and addresses of a text nothing before mentions."""
    found = decisions(text)
    said = {spelling for kind, spelling in found.facts if kind in ("id", "e-mail address", "link")}
    return sum(find_word(one, context.text, 0, end) < 0 for one in said | quantities(found.facts))


def _source(value: str, context: Context, end: int) -> tuple[str, bool]:
    """The word before the first mention of a value by the user or a tool, and whether nothing mentions it at all.

    `owner u7, peer v7`: `u7` is the one after "owner". A prompt may be reworded, so it is no source.
    """
    at = find_word(value, context.text, context.start, end)
    if at >= 0:
        before = _WORD_BEFORE.search(context.text, max(context.start, at - 60), at)
        return _DIGITS.sub("#", before[1][-30:]) if before else "the beginning", False
    if len(value) > 2 and not value.isdecimal():
        return "", context.text.find(value, 0, end) < 0
    return "", find_word(value, context.text, 0, end) < 0


def _sources(values: Sequence[Any], context: Context, end: int) -> str:
    """The words before the values of a list, in its order; empty where one of them is not mentioned."""
    plain = [canonical_json(value).decode(errors="replace").strip('"').lower() for value in values]
    found = [_source(value, context, end)[0] if value else "" for value in plain] if context.text else [""]
    return ", ".join(found) if all(found) else ""


def find_word(value: str, text: str, start: int, end: int) -> int:
    """Where a value stands as a whole word; -1 if nowhere."""
    for _ in range(_MOST_PLACES):
        at = text.find(value, start, end)
        after = at + len(value)
        beside = text[max(0, at - 1) : at], text[after : after + 1]
        if at < 0 or not (_goes_on(beside[0], value[0]) or _goes_on(beside[1], value[-1])):
            return at
        start = at + 1
    return start  # a part of so many words that it is in none of them alone can hardly be shown


def _goes_on(beside: str, edge: str) -> bool:
    return beside.isalnum() and edge.isalnum()


def leave_out_same_values(rows: Sequence[dict[Column, float]]) -> None:
    """Drop where values come from, for the arguments that get the same values in all sessions of a task: other words
    around the same value are no other behaviour.
    """
    given: list[defaultdict[tuple[str, str], Counter[str]]] = []
    for row in rows:
        found: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for column, amount in row.items():
            if column.what == "argument values":
                path, _, value = column.detail.partition("=")
                found[column.subject, path][value] += int(amount)
        given.append(found)
    for row in rows:
        for column in [column for column in row if column.what == "argument source"]:
            key = column.subject, column.detail.partition("=")[0]
            if all(one.get(key) == given[0].get(key) for one in given):
                del row[column]
