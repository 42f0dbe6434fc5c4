"""Judgements of one response: it holds, it breaks the rule, was not recorded, or says nothing or too little to judge.

Grounding compares words. A word is a run of two or more letters, digits and marks of any script, lower-cased; each
distinct word counts once. Only content words of the response are judged: those that are no stop words.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from bylaw.engine.conditions import compile_paths
from bylaw.engine.evidence import shorten
from bylaw.model.demand import FitsSchema, Grounded, StopReasonIn
from bylaw.model.events import Response
from bylaw.text.stop_words import STOP_WORDS

if TYPE_CHECKING:
    import jsonschema_rs

_ASCII_WORD_BYTES = bytes(byte if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256)).lower()
_ASCII_IGNORED = frozenset(chr(code).encode() for code in range(128)) | {
    word.encode() for word in STOP_WORDS if word.isascii()
}
"""words of one letter, and stop words"""


class _WordCharacters(dict[int, int]):
    """For `str.translate`: letters, digits and the marks that belong to letters stay, all else becomes a space."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        stays = character.isalnum() or unicodedata.category(character).startswith("M")
        self[code] = code if stays else 32
        return self[code]


_WORD_CHARACTERS = _WordCharacters()


def content_words(text: str, chunks: list[str]) -> tuple[set[Any], set[Any]]:
    """The content words of the text, and those of them that are not in the chunks.

    ASCII takes a table look-up and a split, several times quicker than any regex, and finds the same words.
    """
    joined = "\n".join(chunks)
    if text.isascii() and joined.isascii():
        words: set[Any] = _ascii_words(text) - _ASCII_IGNORED
        return words, words - _ascii_words(joined)
    words = {word for word in _any_words(text) - STOP_WORDS if len(word) > 1}
    return words, words - _any_words(joined)


def readable(words: set[Any]) -> list[str]:
    return sorted(word.decode() if isinstance(word, bytes) else word for word in words)


def _any_words(text: str) -> set[str]:
    """Composed first: `é` may be recorded as one character or as two."""
    return set(unicodedata.normalize("NFC", text).lower().translate(_WORD_CHARACTERS).split())


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


class _Mark(Enum):
    HOLDS = "holds"
    SKIP = "skip"
    BLIND = "blind"
    THIN = "thin"


HOLDS: Final = _Mark.HOLDS
SKIP: Final = _Mark.SKIP
"""nothing to judge in this turn"""
BLIND: Final = _Mark.BLIND
"""what the rule judges was not recorded"""
THIN: Final = _Mark.THIN
"""the response says too little to be judged"""


class Breach(msgspec.Struct, frozen=True):
    message: str
    excerpt: str | None = None


Answer = Literal[_Mark.HOLDS, _Mark.SKIP, _Mark.BLIND, _Mark.THIN] | Breach
Judge = Callable[[Response], Answer]


def judge_stop_reason(probe: StopReasonIn) -> Judge:
    allowed = frozenset(probe.allowed)
    wanted = " or ".join(f"`{reason}`" for reason in probe.allowed)

    def judge(response: Response) -> Answer:
        reason = response.stop_reason
        if reason in allowed:
            return HOLDS
        return BLIND if reason is None else Breach(f"stop reason is `{reason}`, not {wanted}")

    return judge


def judge_schema(probe: FitsSchema) -> Judge:
    validator = compile_schema(probe.schema)

    def judge(response: Response) -> Answer:
        text = response.text
        if not text and response.tool_calls:
            return SKIP
        if text is None:
            return BLIND
        try:
            value = decode_json(text)
        except (ValueError, UnicodeEncodeError) as problem:
            return SKIP if _says_nothing(response) else Breach(f"response is not JSON: {_reason(problem)}")
        return HOLDS if validator.is_valid(value) else _first_error(validator, value)

    return judge


def decode_json(text: str) -> Any:
    """RFC 8259. Numbers may be of any size there; msgspec refuses those beyond a double."""
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        return json.loads(text, parse_float=_bounded_float, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _bounded_float(digits: str) -> float:
    return max(-sys.float_info.max, min(sys.float_info.max, float(digits)))


def _says_nothing(response: Response) -> bool:
    return bool(response.tool_calls) and not (response.text or "").strip()


def _reason(problem: Exception) -> str:
    text = str(problem).removeprefix("JSON is malformed: ")
    return text[:1].lower() + text[1:]


def compile_schema(schema: Any) -> jsonschema_rs.Validator:
    """Offline, and with a linear-time regex engine: schemas are user input too."""
    import jsonschema_rs  # slow to import, and few rules have a schema

    return jsonschema_rs.validator_for(
        schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
    )


def _first_error(validator: jsonschema_rs.Validator, value: Any) -> Breach:
    error = next(iter(validator.iter_errors(value)))
    path = ".".join(str(part) for part in error.instance_path)
    place = f"at `{path}`" if path else "at the top level"
    return Breach(f"response does not fit the schema {place}: {shorten(error.message, 120)}")


def judge_grounding(probe: Grounded) -> Judge:
    read, fewest = compile_paths(probe.path), max(1, probe.min_words)

    def judge(response: Response) -> Answer:
        chunks = chunk_texts(read(response))
        if not chunks:
            return SKIP
        if response.text is None:
            return BLIND
        words, unknown = content_words(response.text, chunks)
        if len(words) < fewest:
            return SKIP if response.tool_calls or not response.text.strip() else THIN
        found = (len(words) - len(unknown)) / len(words)
        if found >= probe.min_precision:
            return HOLDS
        missing = ", ".join(readable(unknown)[:8]) + (", …" if len(unknown) > 8 else "")
        wanted = f"at least {probe.min_precision:.0%} wanted"
        return Breach(f"{found:.0%} of the content words are in the chunks, {wanted}: {missing} are not")

    return judge
