"""How alike two texts are, by their words: offline, quick, and blind to paraphrase (it says so in the report).

The weight of a word falls with the share of texts that hold it, over both sides; numbers are words, so a changed amount
shows. The same weights serve single pairs (cosine) and whole alignments (hashed vectors).
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[^\W_]+(?:[.,'][^\W_]+)*")
_DIMENSIONS = 256


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


class Lexicon:
    """Word weights of one comparison."""

    name = "lexical"

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = 0
        self._holding: Counter[str] = Counter()
        for text in texts:
            self._texts += 1
            self._holding.update(set(words(text)))

    def similarity(self, left: str, right: str) -> float:
        """Cosine of the weighted words, in [0, 1]; two texts without words are alike."""
        if left == right:
            return 1.0
        one, other = self._vector(left), self._vector(right)
        if not one or not other:
            return 1.0 if not one and not other else 0.0
        shared = sum(weight * other[word] for word, weight in one.items() if word in other)
        return min(1.0, shared / (_length(one) * _length(other)))

    def matrix(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row a text, of length 1: the product of two such matrices approximates every similarity at once."""
        rows = np.zeros((len(texts), _DIMENSIONS), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word, weight in self._vector(text).items():
                code = zlib.crc32(word.encode())
                row[code % _DIMENSIONS] += weight if code & 0x10000 else -weight
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows

    def _vector(self, text: str) -> dict[str, float]:
        counts = Counter(words(text))
        return {word: (1 + math.log(count)) * self._rarity(word) for word, count in counts.items()}

    def _rarity(self, word: str) -> float:
        return math.log((self._texts + 1) / (self._holding[word] + 1)) + 1


def _length(vector: dict[str, float]) -> float:
    return math.sqrt(sum(weight * weight for weight in vector.values()))
