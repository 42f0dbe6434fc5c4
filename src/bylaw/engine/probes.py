"""Judgements of one response: it holds, it breaks the rule, was not recorded, or says nothing or too little to judge.

Text is looked for across blocks: in the text blocks joined by newlines, and in the same blocks joined directly, since a
word may be split over two of them.

Grounding compares words. A word is a run of two or more letters, digits and marks of any script, lower-cased; each
distinct word counts once. Only content words of the response are judged: those that are no stop words.
"""

from __future__ import annotations

import json
import math
import sys
import unicodedata
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from bylaw.engine.conditions import compile_paths
from bylaw.engine.matching import compile_composed, compose
from bylaw.engine.monitor import shorten
from bylaw.engine.values import UNRECORDED
from bylaw.model.demand import AtMost, Cost, FitsSchema, Grounded, Latency, StopReasonIn
from bylaw.model.events import Response
from bylaw.model.temporal import TextHas
from bylaw.text.repeated_keys import repeated_key
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


CHUNK_KEYS = (
    *("text", "content", "page_content", "pageContent", "body", "chunk", "chunk_text", "chunk_content"),
    *("passage", "snippet", "excerpt", "document", "node", "value"),
)
"""the usual names of the text of a chunk, in the order in which they are tried"""
_DEEPEST_CHUNK = 4
"""`{node: {text: …}}` and `{content: [{text: …}]}` are usual too"""


def chunk_texts(values: Iterable[Any]) -> tuple[list[str], int]:
    """The texts of the chunks, and how many chunks hold their text under no usual name. What is null or empty is no
    chunk."""
    items = [
        item
        for value in values
        for item in (value if isinstance(value, list) else (value,))
        if item is not None and item not in ("", {}, [])
    ]
    texts = [item if type(item) is str else _text_of(item) for item in items]
    return [text for text in texts if text], texts.count(None)


def _text_of(item: Any, depth: int = 0) -> str | None:
    if isinstance(item, str):
        return item
    if depth == _DEEPEST_CHUNK:
        return None
    if isinstance(item, list):
        texts = [text for one in item if (text := _text_of(one, depth + 1)) is not None]
        return "\n".join(texts) if texts else None
    if not isinstance(item, dict):
        return None
    found = (_text_of(item[key], depth + 1) for key in CHUNK_KEYS if item.get(key) is not None)
    return next((text for text in found if text is not None), None)


class _Mark(Enum):
    HOLDS = "holds"
    SKIP = "skip"
    BLIND = "blind"
    THIN = "thin"
    UNREAD = "unread"
    LOST = "lost"


HOLDS: Final = _Mark.HOLDS
SKIP: Final = _Mark.SKIP
"""nothing to judge in this turn"""
BLIND: Final = _Mark.BLIND
"""the data that the rule judges was not recorded"""
THIN: Final = _Mark.THIN
"""the response says too little to be judged"""
UNREAD: Final = _Mark.UNREAD
"""the data to compare the response with is recorded in a form that cannot be read"""
LOST: Final = _Mark.LOST
"""the data to compare the response with was not recorded"""


class Breach(msgspec.Struct, frozen=True):
    message: str
    excerpt: str | None = None


Answer = Literal[_Mark.HOLDS, _Mark.SKIP, _Mark.BLIND, _Mark.THIN, _Mark.UNREAD, _Mark.LOST] | Breach
Judge = Callable[[Response], Answer]


def compile_search(probe: TextHas) -> Callable[[Response], tuple[str, int, int] | None]:
    """response with recorded text → the text that matches, and where in it; None where nothing does"""
    find = compile_composed(probe)

    def search(response: Response) -> tuple[str, int, int] | None:
        text = compose(response.text or "")
        place = find(text)
        if place is None and "\n" in text and response.content is not None and len(response.content) > 1:
            text = compose("".join(text_blocks(response.content)))  # two blocks of text are joined by a newline
            place = find(text)
        return None if place is None else (text, *place)

    return search


_TEXT_KEYS = {"text": "text", "output_text": "text", "refusal": "refusal", "None": "text"}
"""blocks that readers take for text, by their type; without one, a block that has text is text"""


def text_blocks(content: list[Any] | None) -> list[str]:
    keys = ((block, _TEXT_KEYS.get(str(block.get("type")), "")) for block in content or () if type(block) is dict)
    texts = (block.get(key) for block, key in keys)
    return [text for text in texts if type(text) is str]


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
    validator = compile_schema(probe.schema, formats=probe.formats)

    def judge(response: Response) -> Answer:
        text = response.text
        if text is None:
            return BLIND  # calls or not: what stood beside them is not known
        if not text and response.tool_calls:
            return SKIP
        if response.calls_follow and not text.strip():
            return BLIND  # it may have issued calls, and then it is not judged
        try:
            value = decode_json(text)
        except (ValueError, UnicodeEncodeError) as problem:
            if response.tool_calls and not text.strip():
                return SKIP
            reason = str(problem).removeprefix("JSON is malformed: ")
            return Breach(f"response is not JSON: {reason[:1].lower()}{reason[1:]}")
        except RecursionError:
            return LOST
        if repeated_key(text, value) is not None:
            return UNREAD  # readers of it differ in which of two values they take
        try:
            return HOLDS if validator.is_valid(value) else _first_error(validator, value)
        except ValueError:  # the validator reads 255 levels, the decoder more
            return LOST

    return judge


def decode_json(text: str) -> Any:
    """RFC 8259. Numbers may be of any size there; msgspec refuses those beyond a double."""
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        return json.loads(text, parse_float=_bounded_float, parse_int=_bounded_int, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _bounded_float(digits: str) -> float:
    return max(-sys.float_info.max, min(sys.float_info.max, float(digits)))


def _bounded_int(digits: str) -> int:
    """Integers of any length are JSON. Python converts none of more than some thousand digits, and one with more than
    these is beyond any bound all the same."""
    return int(digits[:640])


def compile_schema(schema: Any, *, formats: bool = False) -> jsonschema_rs.Validator:
    """Offline, and with a linear-time regex engine: schemas are user input too."""
    import jsonschema_rs  # slow to import, and few rules have a schema

    return jsonschema_rs.validator_for(
        schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=formats
    )


def _first_error(validator: jsonschema_rs.Validator, value: Any) -> Breach:
    error = next(iter(validator.iter_errors(value)))
    path = ".".join(str(part) for part in error.instance_path)
    place = f"at `{path}`" if path else "at the top level"
    return Breach(f"response does not fit the schema {place}: {shorten(error.message, 120)}")


def measure_cost(response: Response) -> Decimal | None:
    """US dollars, without the noise of binary fractions: prices have few digits. None where it is not known."""
    from bylaw.text.prices import cost_of  # the price list is read where a rule is about costs

    cost = cost_of(response)
    return Decimal(f"{cost:.14g}") if cost is not None and 0 <= cost < math.inf else None


def measure_latency(response: Response) -> Decimal | None:
    latency = response.latency_ms
    return Decimal(repr(latency)) if latency is not None and 0 <= latency < math.inf else None


def show_amount(amount: Decimal) -> str:
    return f"{amount.normalize():f}" if abs(amount.adjusted()) < 16 else f"{amount:.6g}"


Measure: TypeAlias = tuple[Callable[[Response], Decimal | None], Callable[[Decimal], str], str]

_COST_UNKNOWN = "the cost of {} is not known: tokens not recorded, or no price for the model"

MEASURES: dict[type, Measure] = {
    Cost: (measure_cost, lambda cost: f"${show_amount(cost)}", _COST_UNKNOWN),
    Latency: (measure_latency, lambda latency: f"{show_amount(latency)} ms", "latency not recorded in {}"),
}
"""how each is measured, shown, and missed"""


def judge_amount(probe: AtMost) -> Judge:
    measure, show, _ = MEASURES[type(probe.measure)]
    limit = Decimal(repr(probe.limit))

    def judge(response: Response) -> Answer:
        amount = measure(response)
        if amount is None:
            return BLIND
        return HOLDS if amount <= limit else Breach(f"{show(amount)}, at most {show(limit)} allowed")

    return judge


def judge_grounding(probe: Grounded) -> Judge:
    read, fewest = compile_paths(probe.path), max(1, probe.min_words)

    def judge(response: Response) -> Answer:
        values = read(response)
        lost = any(value is UNRECORDED for value in values)
        chunks, unread = chunk_texts([value for value in values if value is not UNRECORDED] if lost else values)
        if not chunks and not unread and not lost:
            return SKIP
        if response.text is None:
            return BLIND
        words, unknown = content_words(response.text, chunks)
        if len(words) < fewest:
            return THIN if response.text.strip() else SKIP
        found = (len(words) - len(unknown)) / len(words)
        if found >= probe.min_precision and chunks:
            return HOLDS
        if unread or lost:
            return UNREAD if unread else LOST
        missing = ", ".join(readable(unknown)[:8]) + (", …" if len(unknown) > 8 else "")
        wanted = f"at least {probe.min_precision:.0%} wanted"
        return Breach(f"{found:.0%} of the content words are in the chunks, {wanted}: {missing} are not")

    return judge
