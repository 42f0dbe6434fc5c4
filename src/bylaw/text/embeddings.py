"""Texts as directions, so that a paraphrase counts as near: one file a backend, weights from an installed package.

Nothing here reaches for the network. A backend reads its files itself, since the loaders that come with them may not.
"""

from __future__ import annotations

from bylaw.model.ports import Embedder

__all__ = ["load_embedder"]


def load_embedder() -> Embedder:
    """The backend of the extra `embeddings`. Raises InputError where the extra is not installed."""
    from bylaw.text.wordllama import load_wordllama

    return load_wordllama()
