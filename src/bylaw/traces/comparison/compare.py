"""Two recordings of one task, turn against turn. Every figure of every axis is read off here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

from rapidfuzz.distance import Levenshtein

from bylaw.model.ports import TextSimilarity
from bylaw.text.lexical import Lexicon
from bylaw.traces.comparison.align import Pair, align
from bylaw.traces.comparison.sessions import Recording
from bylaw.traces.comparison.shapes import conforms
from bylaw.traces.comparison.steps import Step

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
        """How far each turn's text moved, by its words unless told otherwise: 0 the same, 1 nothing alike, or text
        that has no counterpart.
        """
        texts = texts or self._lexicon
        moved = []
        for b, c in self.sides:
            if b is None:
                continue  # what was added took nothing away: an inserted greeting is a divergence, no lost meaning
            if b.text or (c and c.text):
                moved.append(1.0 - texts.similarity(b.text, c.text) if c else 1.0)
        return moved

    def trajectory(self) -> list[float]:
        return [_calls_apart(b, c, lambda step: step.tokens) for b, c in self.sides]

    def structure(self) -> list[float]:
        """The trajectory without argument values."""
        return [_calls_apart(b, c, lambda step: step.shape) for b, c in self.sides]

    def conformance(self) -> list[float]:
        """For each baseline turn with structured output or calls: 0 if the candidate kept its shape, else 1."""
        kept = (conforms(b.response, c.response if c else None) for b, c in self.sides if b)
        return [0.0 if shape_kept else 1.0 for shape_kept in kept if shape_kept is not None]

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
