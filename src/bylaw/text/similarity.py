"""How alike two texts are: by their words (`Lexicon`), or by sentence embeddings (`EmbeddedTexts`).

Words are fast and offline, and see no paraphrase. A word weighs less the more texts contain it; numbers are words, so
a changed amount shows. The same weights serve single pairs (cosine) and whole alignments (hashed vectors).

Embeddings are WordLlama's static token vectors: a text is the mean of its tokens' vectors, scaled to length 1. The
package `wordllama` is not imported: it would import pydantic and requests, and its loader downloads missing files. The
two files needed are read from its wheel, and nothing uses the network.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.ports import Embedder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORD = re.compile(r"[^\W_]+(?:[.,'][^\W_]+)*")
_DIMENSIONS = 256
_MOST_TEXTS = 1_000
"""texts of which the weights are remembered"""


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


class Lexicon:
    """Word weights of one comparison."""

    name = "lexical"

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = 0
        self._holding: Counter[str] = Counter()
        for text, times in Counter(texts).items():  # most texts are the same on both sides
            self._texts += times
            found = set(words(text))
            for _ in range(times):
                self._holding.update(found)
        # sessions with repeats are compared several times
        self._vector = lru_cache(_MOST_TEXTS)(self._weights)
        self._row = lru_cache(_MOST_TEXTS)(self._hash_vector)

    def similarity(self, left: str, right: str) -> float:
        """Cosine of the weighted words, in [0, 1]; two texts without words are equal."""
        if left == right:
            return 1.0
        one, other = self._vector(left), self._vector(right)
        if not one or not other:
            return 1.0 if not one and not other else 0.0
        shared = sum(weight * other[word] for word, weight in one.items() if word in other)
        return min(1.0, shared / (_length(one) * _length(other)))

    def matrix(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length 1 per text: the product of two such matrices approximates every similarity."""
        return np.array([self._row(text) for text in texts], dtype=np.float32).reshape(len(texts), _DIMENSIONS)

    def _hash_vector(self, text: str) -> NDArray[np.float32]:
        row = np.zeros(_DIMENSIONS, dtype=np.float32)
        for word, weight in self._vector(text).items():
            code = zlib.crc32(word.encode())
            row[code % _DIMENSIONS] += weight if code & 0x10000 else -weight
        length = np.linalg.norm(row)
        return row / length if length > 0 else row

    def _weights(self, text: str) -> dict[str, float]:
        counts = Counter(words(text))
        rarity = {word: math.log((self._texts + 1) / (self._holding[word] + 1)) + 1 for word in counts}
        return {word: (1 + math.log(count)) * rarity[word] for word, count in counts.items()}


def _length(vector: dict[str, float]) -> float:
    return math.sqrt(sum(weight * weight for weight in vector.values()))


class EmbeddedTexts:
    """Every distinct text of one comparison, embedded once."""

    def __init__(self, embedder: Embedder, texts: Iterable[str]) -> None:
        self.name = embedder.name
        distinct = list(dict.fromkeys(texts))
        self._rows = embedder.embed(distinct)
        self._row_of = {text: row for row, text in enumerate(distinct)}

    def similarity(self, left: str, right: str) -> float:
        """Cosine, in [0, 1]; two blank texts are alike, a blank one is like no other."""
        if left == right:
            return 1.0
        if not left.strip() or not right.strip():
            return 1.0 if not left.strip() and not right.strip() else 0.0
        cosine = np.dot(self._rows[self._row_of[left]], self._rows[self._row_of[right]])
        return min(1.0, max(0.0, float(cosine)))


_FILES = (
    "wordllama/weights/l2_supercat_256.safetensors",
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
)
_BATCH = 256
"""texts tokenized at once, which bounds the memory"""


class WordLlama:
    def __init__(self, name: str, vectors: NDArray[np.floating[Any]], tokenizer: Tokenizer) -> None:
        self.name = name
        self._vectors = vectors.astype(np.float32)
        self._tokenizer = tokenizer

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length 1 per text; zeros for a text without tokens."""
        rows = np.zeros((len(texts), self._vectors.shape[1]), dtype=np.float32)
        for row, tokens in zip(rows, self._tokens(texts), strict=True):
            if tokens:
                row[:] = self._vectors[tokens].mean(axis=0)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows

    def _tokens(self, texts: Sequence[str]) -> Iterator[list[int]]:
        for start in range(0, len(texts), _BATCH):
            # The tokenizer does not accept lone surrogates.
            batch = [text.encode("utf-8", "replace").decode() for text in texts[start : start + _BATCH]]
            for encoding in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                yield encoding.ids


def load_embedder() -> Embedder:
    """The backend of the extra `embeddings`. Raises InputError where the extra is not installed."""
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        package = distribution("wordllama")
    except ModuleNotFoundError as missing:  # a distribution that is not found raises one too
        _fail(f"sentence embeddings need `{missing.name}`, which is not installed")
    files = [Path(str(package.locate_file(name))) for name in _FILES]
    for name, path in zip(_FILES, files, strict=True):
        if not path.is_file():
            _fail(f"wordllama {package.version} does not hold `{name}`")
    vectors = load_file(files[0])["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(files[1]))
    return WordLlama(f"wordllama {package.version}, {vectors.shape[1]} dimensions", vectors, tokenizer)


def _fail(message: str) -> NoReturn:
    help = "pip install 'bylaw[embeddings]'"
    raise InputError([Diagnostic(code="missing-extra", message=message, file="--embeddings", help=help)])
