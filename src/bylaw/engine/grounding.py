"""Lexical grounding: which share of a response's words stands in the retrieved chunks.

A word is a run of two or more letters, digits and marks of any script, lower-cased; each distinct word counts once.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

_ASCII_WORD_BYTES = bytes(byte if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256)).lower()
_ONE_LETTER = frozenset(chr(code).encode() for code in range(128))


class _WordCharacters(dict[int, int]):
    """For `str.translate`: letters, digits and the marks that belong to letters stay, all else becomes a space."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        stays = character.isalnum() or unicodedata.category(character).startswith("M")
        self[code] = code if stays else 32
        return self[code]


_WORD_CHARACTERS = _WordCharacters()


def share_found(text: str, chunks: list[str]) -> tuple[float, set[Any]] | None:
    """The share of the text's words found in the chunks, and the words that were not. None: the text has no word."""
    said, known = _word_sets(text, "\n".join(chunks))
    if not said:
        return None
    unknown = said - known
    return (len(said) - len(unknown)) / len(said), unknown


def readable(words: set[Any]) -> list[str]:
    return sorted(word.decode() if isinstance(word, bytes) else word for word in words)


def _word_sets(text: str, chunks: str) -> tuple[set[Any], set[Any]]:
    """ASCII takes a table look-up and a split, several times quicker than any regex, and finds the same words."""
    if text.isascii() and chunks.isascii():
        return _ascii_words(text) - _ONE_LETTER, _ascii_words(chunks)
    return {word for word in _any_words(text) if len(word) > 1}, _any_words(chunks)


def _any_words(text: str) -> set[str]:
    return set(text.lower().translate(_WORD_CHARACTERS).split())


def _ascii_words(text: str) -> set[bytes]:
    return set(text.encode().translate(_ASCII_WORD_BYTES).split())


def chunk_texts(values: Iterable[Any]) -> list[str]:
    """Chunks may be text, a list of texts, or a list of objects that hold their text under a usual name."""
    items = [item for value in values for item in (value if isinstance(value, list) else (value,))]
    texts = [item if type(item) is str else _text_of(item) for item in items]
    return [text for text in texts if text]


def _text_of(item: Any) -> str | None:
    if isinstance(item, dict):
        item = next((item[key] for key in ("text", "content", "page_content") if isinstance(item.get(key), str)), None)
    return item if isinstance(item, str) else None
