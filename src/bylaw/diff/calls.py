"""How a session calls its tools: how often, with which arguments, where their values come from, and in which order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations, islice
from typing import Any

from bylaw.diff.code_values import is_command, is_shell
from bylaw.diff.columns import OF_TOOL, Column
from bylaw.model.canonical import canonical_json, json_type
from bylaw.text.decision_words import one_sided, sides_taken
from bylaw.text.decisions import MENTIONED, decisions, is_prose, quantities
from bylaw.traces.comparison.recording import Context, Recording, arguments

_MOST_VALUES = 2_000
"""argument values of a session, or of one call, that are columns"""
_LONG_VALUE = 200
"""characters of an argument value; a longer one is known by its beginning and its digest"""
_SHOWN = 40
"""characters of this beginning"""
_MOST_LISTED = 8
"""elements of a list that is a value as a whole, with the places it comes from; a longer one is known by its digest"""
_MOST_ELEMENTS = 200
"""elements of a list that are columns"""
_DEEPEST = 20
"""levels of a value in which prose is looked for"""
_MOST_READ = 300
"""characters of an argument value whose words are columns"""
_MOST_WORDS = 16, 1_000
"""words of a value and of a session that are columns"""
_MOST_PROSE = 20_000
"""characters of an argument in which opposites are looked for"""
_MOST_ORDERED = 12
"""tools of a session, the first ones it calls, whose order is a column for each two of them; arguments likewise"""
_MOST_PLACES = 200
"""places that are tried for a short value, which may be a part of many words"""
_WORD_BEFORE = re.compile(r"(\w+)[^\w\n]*$")
_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGIT = re.compile(r"\d")
_HOST = re.compile(r"^[a-zA-Z][\w+.-]{0,20}://(?:[^\s/@]{0,200}@)?([^\s/:?#]{1,253})|^[^\s@]{1,200}@([\w.-]{1,253})$")
_TOKEN = re.compile(r"[^\W\d][\w.]*|(?<!\S)--?[a-zA-Z][\w-]*|(?<![<>=!-])(?:[<>]=?|[!=]=)(?=[\s\w'\"-])|&&|\|\|")
_PIECE = re.compile(r"[^\W_]+")


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
    values = words = 0
    first: dict[str, int] = {}
    mentions: dict[tuple[str, str], tuple[str, str, int]] = {}
    for place, (step, end) in enumerate(zip(recording.steps, context.ends, strict=False)):
        for call, shape in zip(step.response.tool_calls, step.shape, strict=True):
            first.setdefault(call.name, place)
            yield Column("trajectory", "calls", call.name), 1
            yield Column("trajectory", "argument names", call.name, shape), 1
            strange = 0
            types: set[tuple[str, str]] = set()
            is_of_shell = is_shell(call.name) and _texts_of(arguments(call)) == 1
            for path, leaf in _leaves_of(arguments(call)) if values < _MOST_VALUES else ():
                values += 1
                types.add((path, json_type(leaf)))
                if isinstance(leaf, str) and " " in leaf:
                    yield from _opposites(call.name, path, leaf)
                if isinstance(leaf, str) and is_prose(leaf):
                    yield from _decided(call.name, path, leaf)
                    strange += _invented(leaf, context, end) if context.text else 0
                    continue
                if words < _MOST_WORDS[1]:
                    for word in _words(leaf, path, is_of_shell):
                        words += 1
                        yield Column("trajectory", "argument word", call.name, f"{path}={word}"), 1
                value = canonical_json(_without_prose(leaf)).decode(errors="replace")
                is_long = len(value) > _LONG_VALUE or (isinstance(leaf, list) and len(leaf) > _MOST_LISTED)
                shown = _abridged(value) if is_long else value
                yield Column("trajectory", "argument values", call.name, f"{path}={shown}"), 1
                if is_long:
                    continue
                if isinstance(leaf, list):
                    if sources := _sources(leaf, context, end):
                        yield Column("trajectory", "argument source", call.name, f"{path}={sources}"), 1
                    continue
                plain = value.strip('"').lower()
                if context.text and plain not in ("true", "false", "null", ""):
                    source, is_strange, at = _source(plain, context, end)
                    strange += is_strange
                    if source:
                        yield Column("trajectory", "argument source", call.name, f"{path}={source}"), 1
                        if len(mentions) < _MOST_ORDERED:
                            mentions.setdefault((call.name, path), (source, plain, at))
            for path, kind in types:
                yield Column("trajectory", "argument type", call.name, f"{path}={kind}"), 1
            if context.text:
                yield Column("trajectory", "values from nowhere", call.name), strange
    for tool in first:  # apart from how often: in a sum of counts, sessions with many calls hide those with none
        yield Column("trajectory", "called", tool), 1
    for one, other in combinations(sorted(list(first)[:_MOST_ORDERED]), 2):
        if first[one] != first[other]:
            yield Column("trajectory", "order", one, other), 1 if first[one] < first[other] else -1
    yield from _mention_order(mentions)


def _mention_order(mentions: Mapping[tuple[str, str], tuple[str, str, int]]) -> Iterator[tuple[Column, float]]:
    """Which of two values of one kind is mentioned first, if both stand after the same word, as two account numbers do.
    They are arguments of one tool, or arguments of two tools with the same name.
    """
    for one, other in combinations(sorted(mentions), 2):
        (source, value, at), (other_source, other_value, other_at) = mentions[one], mentions[other]
        is_near = one[0] == other[0] or one[1] == other[1]
        is_alike = source == other_source and _kind(value) == _kind(other_value)
        if is_near and is_alike and value != other_value:
            detail = f"{one[1]}={other[0]}{OF_TOOL}{other[1]}"
            yield Column("trajectory", "argument order", one[0], detail), 1 if at < other_at else -1


def _kind(value: str) -> str:
    """`a-0` for `t-23`."""
    return _DIGITS.sub("0", _LETTERS.sub("a", value))


def _leaves_of(given: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a call's arguments; of too many, the first ones and all arguments as one more."""
    leaves = _leaves(given)
    yield from islice(leaves, _MOST_VALUES)
    if next(leaves, None) is not None:
        yield "all arguments", given


def _leaves(given: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The argument's leaves, each with its path, and lists as a whole: their order may decide."""
    if isinstance(given, dict) and depth < 5:
        for key, value in given.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(given, list) and depth < 5:
        if len(given) > 1:
            yield path, given
        each = "*" if len(given) <= _MOST_ELEMENTS else f"(the first {_MOST_ELEMENTS})"
        for value in given[:_MOST_ELEMENTS]:
            yield from _leaves(value, f"{path}.{each}", depth + 1)
    else:
        yield path, given


def _without_prose(value: Any, depth: int = 0) -> Any:
    """A list without its texts for people, which count by what they decide."""
    if isinstance(value, list) and depth < _DEEPEST:
        return [_without_prose(one, depth + 1) for one in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {key: _without_prose(one, depth + 1) for key, one in value.items()}
    return "…" if isinstance(value, str) and is_prose(value) else value


def _abridged(value: str) -> str:
    digest = sha256(value.encode(errors="replace")).hexdigest()[:8]
    return f"{value[:_SHOWN]}… ({len(value):,} characters, digest {digest})"


def _texts_of(given: Any) -> int:
    """How many texts of several words a call has. A shell that gets two may get a description in one of them."""
    return sum(isinstance(leaf, str) and " " in leaf.strip() for _, leaf in _leaves_of(given))


def _words(leaf: Any, path: str, is_of_shell: bool) -> Iterable[str]:
    """What a value that differs in each call is made of: the host, the domain, folders, the words and signs of a
    command or a query, the sign of a number. What has digits differs too. Other texts of several words are read for
    opposites only, as another wording is no other decision. `is_of_shell`: a shell gets no other text.
    """
    if not isinstance(leaf, str):
        is_negative = isinstance(leaf, int | float) and leaf < 0
        return ["-"] if is_negative else []
    text = leaf[:_MOST_READ]
    if text[:1] == "-" and text[1:2].isdigit():
        return ["-"]
    parts = text.split()
    hosts: list[str] = []
    if len(parts) > 1 and is_command(text, argument=path.rpartition(".")[2], is_of_shell=is_of_shell):
        found = _TOKEN.findall(text.lower())
    else:
        found = []
        for part in parts if len(parts) == 1 else [part for part in parts[:8] if "://" in part or "@" in part]:
            part = part.strip(",;<>()\"'")
            host = _HOST.match(part.lower())
            pieces = _PIECE.findall(part[host.end() :] if host else part)
            hosts += [host[1] or f"@{host[2]}"] if host else []
            found += [piece.lower() for piece in pieces if len(pieces) > 1 or host]
    kept = dict.fromkeys([*hosts, *(word for word in found if not _DIGIT.search(word))])
    return islice(kept, _MOST_WORDS[0])


def _decided(tool: str, path: str, text: str) -> Iterator[tuple[Column, float]]:
    """What an argument in prose decides. Its words are no columns."""
    found = decisions(text)
    yield Column("trajectory", "argument negation", tool, path), float(found.is_negated)
    for kind, spelling in found.facts:
        what = "argument name" if kind in MENTIONED else "argument fact"
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


def _source(value: str, context: Context, end: int) -> tuple[str, bool, int]:
    """The word before the first mention of a value by the user or a tool, whether nothing mentions it at all, and where
    the first mention is.

    `owner u7, peer v7`: `u7` is the one after "owner". A prompt may be reworded, so it is no source.
    """
    at = find_word(value, context.text, context.start, end)
    if at >= 0:
        before = _WORD_BEFORE.search(context.text, max(context.start, at - 60), at)
        return _DIGITS.sub("#", before[1][-30:]) if before else "the beginning", False, at
    if len(value) > 2 and not value.isdecimal():
        return "", context.text.find(value, 0, end) < 0, at
    return "", find_word(value, context.text, 0, end) < 0, at


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
    """Drop where values come from and which one is mentioned first, for the arguments that get the same values in all
    sessions of a task: other words around the same value are no other behaviour.
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
        for column in [column for column in row if column.what in ("argument source", "argument order")]:
            path, _, other = column.detail.partition("=")
            keys = [(column.subject, path)]
            if column.what == "argument order":
                tool, _, argument = other.partition(OF_TOOL)
                keys.append((tool, argument))
            if all(one.get(key) == given[0].get(key) for one in given for key in keys):
                del row[column]
