"""What two turns do not share: their calls first, then what came back, how it ended, and the words.

What only one side recorded is unknown on the other, which is no difference. Ids of calls are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from rapidfuzz.distance import Levenshtein

from bylaw.inspect.model import Called, Difference, TurnEntry
from bylaw.model.canonical import canonical_json
from bylaw.traces.comparison.steps import arguments

CallPair: TypeAlias = tuple[int | None, int | None]
_ABSENT = object()


def pair_calls(b: TurnEntry | None, c: TurnEntry | None) -> tuple[CallPair, ...]:
    """Calls of the same place, where the names do not say better."""
    left = [called.call.name for called in b.calls] if b else []
    right = [called.call.name for called in c.calls] if c else []
    pairs: list[CallPair] = []
    for step in Levenshtein.opcodes(left, right):
        rows = range(step.src_start, step.src_end)
        columns = range(step.dest_start, step.dest_end)
        pairs += zip(rows, columns, strict=False)
        shared = min(len(rows), len(columns))
        pairs += [(row, None) for row in rows[shared:]] + [(None, column) for column in columns[shared:]]
    return tuple(pairs)


def differences(b: TurnEntry | None, c: TurnEntry | None, pairs: tuple[CallPair, ...]) -> tuple[Difference, ...]:
    if b is None or c is None:
        one = b or c
        names = ", ".join(called.call.name for called in one.calls) if one else ""
        what = ("a turn is missing" if c is None else "a turn was added") + (f" that calls {names}" if names else "")
        return (Difference(aspect="turn", what=what),)
    return (*_calls(b, c, pairs), *_stop(b, c), *_text(b, c))


def _calls(b: TurnEntry, c: TurnEntry, pairs: tuple[CallPair, ...]) -> Iterator[Difference]:
    results: list[Difference] = []
    for place, (left, right) in enumerate(pairs):
        before = None if left is None else b.calls[left]
        after = None if right is None else c.calls[right]
        if before is None or after is None:
            yield _one_sided(place, before, after)
        elif before.call.name != after.call.name:
            yield Difference(
                aspect="call", what="tool call", baseline=before.call.name, candidate=after.call.name, call=place
            )
        else:
            yield from _arguments(place, before, after)
            results += _results(place, before, after)
    yield from results


def _one_sided(place: int, before: Called | None, after: Called | None) -> Difference:
    if before is not None:
        what, given = f"tool call {before.call.name} is no longer made", arguments(before.call)
        return Difference(aspect="call", what=what, baseline=given, call=place)
    assert after is not None
    what, given = f"tool call {after.call.name} is new", arguments(after.call)
    return Difference(aspect="call", what=what, candidate=given, call=place)


def _arguments(place: int, before: Called, after: Called) -> Iterator[Difference]:
    left, right = arguments(before.call), arguments(after.call)
    if left is None or right is None or _same(left, right):
        return
    name = f"tool call {before.call.name}"
    if not (isinstance(left, dict) and isinstance(right, dict)):
        yield Difference(aspect="arguments", what=name, baseline=left, candidate=right, call=place)
        return
    for key in (*left, *(key for key in right if key not in left)):
        old, new = left.get(key, _ABSENT), right.get(key, _ABSENT)
        if old is _ABSENT:
            yield Difference(aspect="arguments", what=f"{name} {key} is new", candidate=new, call=place)
        elif new is _ABSENT:
            yield Difference(aspect="arguments", what=f"{name} {key} is gone", baseline=old, call=place)
        elif not _same(old, new):
            yield Difference(aspect="arguments", what=f"{name} {key}", baseline=old, candidate=new, call=place)


def _results(place: int, before: Called, after: Called) -> Iterator[Difference]:
    if not before.results or not after.results:
        return
    left, right = before.results[-1], after.results[-1]
    what = f"result of {before.call.name}"
    if None not in (left.is_error, right.is_error) and left.is_error != right.is_error:
        what += " is an error" if right.is_error else " is no error any more"
    elif left.content is None or right.content is None or _same(left.content, right.content):
        return
    yield Difference(aspect="result", what=what, baseline=left.content, candidate=right.content, call=place)


def _stop(b: TurnEntry, c: TurnEntry) -> Iterator[Difference]:
    before, after = b.response.stop_reason, c.response.stop_reason
    if before is not None and after is not None and before != after:
        yield Difference(aspect="stop", what="stop reason", baseline=before, candidate=after)


def _text(b: TurnEntry, c: TurnEntry) -> Iterator[Difference]:
    before, after = b.response.text, c.response.text
    if before is not None and after is not None and before != after:
        yield Difference(aspect="text", what="text", baseline=before, candidate=after)


def _same(left: Any, right: Any) -> bool:
    return canonical_json(left) == canonical_json(right)
