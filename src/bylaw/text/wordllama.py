"""WordLlama's static token vectors: a text is the mean of its tokens' vectors, scaled to length 1.

The package `wordllama` is never imported: that would bring in pydantic and requests, and its loader downloads what it
does not find. Its wheel holds the two files needed, and they are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
TOKENIZER = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_BATCH = 256
"""texts tokenized at once: the tokens of a batch are held in memory"""


class WordLlama:
    def __init__(self, name: str, vectors: NDArray[np.floating[Any]], tokenizer: Tokenizer) -> None:
        self.name = name
        self._vectors = vectors.astype(np.float32)
        self._tokenizer = tokenizer

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row a text, of length 1; zeros for a text without tokens. A row depends on its own text alone."""
        rows = np.zeros((len(texts), self._vectors.shape[1]), dtype=np.float32)
        for row, tokens in zip(rows, self._tokens(texts), strict=True):
            if tokens:
                row[:] = self._vectors[tokens].mean(axis=0)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows

    def _tokens(self, texts: Sequence[str]) -> Iterator[list[int]]:
        for start in range(0, len(texts), _BATCH):
            batch = [_encodable(text) for text in texts[start : start + _BATCH]]
            for encoding in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                yield encoding.ids


def load_wordllama() -> WordLlama:
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        package = distribution("wordllama")
    except ModuleNotFoundError as missing:  # a distribution that is not found raises one too
        _refuse(f"sentence embeddings need `{missing.name}`, which is not installed")
    vectors = load_file(_file(package, WEIGHTS))["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(_file(package, TOKENIZER)))
    return WordLlama(f"wordllama {package.version}, {vectors.shape[1]} dimensions", vectors, tokenizer)


def _file(package: Distribution, name: str) -> Path:
    path = Path(str(package.locate_file(name)))
    if not path.is_file():
        _refuse(f"wordllama {package.version} does not hold `{name}`")
    return path


def _refuse(message: str) -> NoReturn:
    help = "pip install 'bylaw[embeddings]'"
    raise InputError([Diagnostic(code="missing-extra", message=message, file="--embeddings", help=help)])


def _encodable(text: str) -> str:
    """Half a surrogate pair is no character; the tokenizer refuses it."""
    return text.encode("utf-8", "replace").decode()
