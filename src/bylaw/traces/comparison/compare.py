"""Pairs the sessions of two sides, and compares two recordings of one task turn by turn.

Sessions are paired by id, else by task, the rest in order. Trials of one task are pooled. Ids that a reader made up
(`1`, `2`, `3`, …) match nothing in another file and are ignored. Sessions with equal ids are compared only with each
other, even if tasks of other sessions are equal: "Hi" starts many conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field
from rapidfuzz.distance import Levenshtein

from bylaw.model.events import Response
from bylaw.model.ports import TextSimilarity
from bylaw.model.values import json_type
from bylaw.text.similarity import Lexicon
from bylaw.traces.comparison.align import Pair, align
from bylaw.traces.comparison.recording import Recording, Step, arguments


class Group(Struct):
    """Trials of the same task: at least one recording on each side."""

    name: str
    baseline: list[Recording] = field(default_factory=list)
    candidate: list[Recording] = field(default_factory=list)
    comparisons: dict[tuple[int, int], Any] = field(default_factory=dict)
    """cached alignments, by the identity of the two recordings"""

    @property
    def has_repeats(self) -> bool:
        """Whether the baseline has several trials, which show its own run-to-run divergence."""
        return len(self.baseline) > 1


class Pairing(Struct):
    groups: list[Group] = field(default_factory=list)
    missing: list[Recording] = field(default_factory=list)
    """baseline sessions with no counterpart"""
    extra: list[Recording] = field(default_factory=list)
    """candidate sessions with no counterpart"""


def pair_sessions(baseline: Sequence[Recording], candidate: Sequence[Recording]) -> Pairing:
    baseline = [recording for recording in baseline if recording.steps]
    candidate = [recording for recording in candidate if recording.steps]
    if len(baseline) == len(candidate) == 1:
        return Pairing([Group(baseline[0].session, [baseline[0]], [candidate[0]])])
    numbered = _numbered(baseline) | _numbered(candidate)
    by_id, baseline, candidate = _match(baseline, candidate, lambda r: None if r.trace in numbered else r.session)
    by_task, baseline, candidate = _match(baseline, candidate, lambda recording: recording.task)
    in_order = [Group(b.session, [b], [c]) for b, c in zip(baseline, candidate, strict=False)]
    matched = len(in_order)
    return Pairing([*by_id, *by_task, *in_order], list(baseline[matched:]), list(candidate[matched:]))


def _numbered(recordings: Sequence[Recording]) -> set[str]:
    """Traces whose sessions are named 1, 2, 3, …: a reader made these names, so they match nothing in another file."""
    names: dict[str, list[str]] = {}
    for recording in recordings:
        names.setdefault(recording.trace, []).append(recording.session)
    return {trace for trace, ids in names.items() if all(id.isdecimal() and int(id) <= len(ids) for id in ids)}


_Split = tuple[list[Group], list[Recording], list[Recording]]


def _match(
    baseline: Sequence[Recording], candidate: Sequence[Recording], key_of: Callable[[Recording], str | None]
) -> _Split:
    """Groups of equal keys, and the remaining recordings on each side."""
    groups: dict[str, Group] = {}
    for recording in baseline:
        key = key_of(recording)
        if key is not None:
            groups.setdefault(key, Group(key)).baseline.append(recording)
    for recording in candidate:
        key = key_of(recording)
        if key is not None and key in groups:
            groups[key].candidate.append(recording)
    full = [group for group in groups.values() if group.candidate]
    used = {id(recording) for group in full for recording in (*group.baseline, *group.candidate)}
    return full, [r for r in baseline if id(r) not in used], [r for r in candidate if id(r) not in used]


def conforms(baseline: Response, candidate: Response | None) -> bool | None:
    """Whether the candidate has the baseline's shape; None if the baseline has no structured output and no call.

    Structured output keeps its shape if it is JSON of the same type and, for an object, with the same keys. Calls keep
    theirs if each baseline call has a candidate call of the same tool with the same argument keys.
    """
    structure = _structure(baseline.text)
    if structure is not None:
        return candidate is not None and _structure(candidate.text) == structure
    if not baseline.tool_calls:
        return None
    left = [] if candidate is None else [_call_shape(call) for call in candidate.tool_calls]
    for call in baseline.tool_calls:
        if _call_shape(call) not in left:
            return False
        left.remove(_call_shape(call))
    return True


def _structure(text: str | None) -> Any:
    """The type and keys of a text that is a JSON object or list, code fences allowed; None for prose."""
    stripped = _unfenced((text or "").strip())
    if not stripped.startswith(("{", "[")):
        return None
    try:
        value = msgspec.json.decode(stripped)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return ("object", frozenset(value)) if isinstance(value, dict) else (json_type(value),)


def _unfenced(text: str) -> str:
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```").strip()
    return text


def _call_shape(call: Any) -> tuple[str, Any]:
    found = arguments(call)
    return call.name, frozenset(found) if isinstance(found, dict) else json_type(found)


Sides: TypeAlias = tuple[Step | None, Step | None]


class Comparison:
    """A baseline recording and a candidate recording (or two of the baseline, for its own run-to-run divergence)."""

    def __init__(self, baseline: Recording, candidate: Recording, lexicon: Lexicon) -> None:
        self.baseline = baseline
        self.candidate = candidate
        self._lexicon = lexicon

    @cached_property
    def pairs(self) -> list[Pair]:
        return align(self.baseline.steps, self.candidate.steps, self._lexicon)

    @property
    def sides(self) -> Iterator[Sides]:
        for b, c in self.pairs:
            yield (
                None if b is None else self.baseline.steps[b],
                None if c is None else self.candidate.steps[c],
            )

    def semantic(self, texts: TextSimilarity | None = None) -> list[float]:
        """How much each turn's text changed, by its words unless `texts` is passed: 0 the same, 1 nothing in common,
        or no counterpart.
        """
        texts = texts or self._lexicon
        moved = []
        for b, c in self.sides:
            if b is None:
                continue  # an inserted turn is a divergence, but loses no meaning
            if b.text or (c and c.text):
                moved.append(1.0 - texts.similarity(b.text, c.text) if c else 1.0)
        return moved

    def trajectory(self) -> list[float]:
        return [_calls_apart(b, c, lambda step: step.tokens) for b, c in self.sides]

    def structure(self) -> list[float]:
        """The trajectory without argument values."""
        return [_calls_apart(b, c, lambda step: step.shape) for b, c in self.sides]

    def conformance(self) -> list[float]:
        """For each baseline turn with structured output or calls: 0 if the candidate has the same shape, else 1."""
        found = (conforms(b.response, c.response if c else None) for b, c in self.sides if b)
        return [0.0 if is_same else 1.0 for is_same in found if is_same is not None]

    def values(self, measure: Callable[[Step], float | None]) -> list[tuple[float, float]]:
        """The measure on both sides of each turn; a turn without counterpart is measured against 0."""
        both = []
        for b, c in self.sides:
            before, after = (measure(b) if b else 0.0), (measure(c) if c else 0.0)
            if before is not None and after is not None:
                both.append((before, after))
        return both


def _calls_apart(b: Step | None, c: Step | None, tokens: Callable[[Step], Sequence[str]]) -> float:
    """Edit distance of the calls, divided by the longer list; an unmatched turn scores 1 if it has calls."""
    left, right = (tokens(b) if b else ()), (tokens(c) if c else ())
    return Levenshtein.normalized_distance(left, right) if left or right else 0.0
