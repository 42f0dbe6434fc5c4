"""How alike two texts are, by the directions that an embedder gives them: a paraphrase is near, whatever its words."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bylaw.model.ports import Embedder


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
