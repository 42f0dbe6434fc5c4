"""Answers that have to be like a text: an expected one, a given baseline, or the calm answers to the same prompt."""

from __future__ import annotations

from collections.abc import Sequence

from bylaw.contract.judging.judgement import Seen, excerpt
from bylaw.model.ports import TextSimilarity


def alike(answer: str, texts: Sequence[str], threshold: float, measure: TextSimilarity, what: str) -> Seen:
    """Like the nearest of the texts: calm answers differ among themselves, and any of them will do."""
    figures = [measure.similarity(answer, text) for text in texts]
    best = max(range(len(texts)), key=figures.__getitem__)
    found = f"{figures[best]:.2f} like {what} `{excerpt(texts[best], 80)}`, {threshold:g} wanted ({measure.name})"
    return Seen(figures[best] >= threshold, found)
