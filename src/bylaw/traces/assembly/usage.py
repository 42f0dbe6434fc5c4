"""Token counts with one meaning: cached tokens are part of the input, reasoning tokens are part of the output.

Providers differ. OpenAI counts cached tokens in its prompt and reasoning in its completion. Anthropic counts cache
reads and writes in addition to its input. `.agentlog` writers do both, under names of their own, so there the numbers
decide: a part that is larger than its whole was counted in addition to it.

| recorded                                                        | means                                             |
|-----------------------------------------------------------------|---------------------------------------------------|
| `prompt_tokens` and its details                                 | everything inside                                 |
| `input_tokens`, `cache_read_…`, `cache_creation_…`, `cached_write_…` | cache counts not in the input, added to it   |
| `cached_input_tokens`                                           | inside, unless larger than the input or `claude…` |
| `cache_read_tokens`                                             | inside, unless larger than the input              |
| `thinking_tokens`                                               | inside the output, unless larger                  |
| `promptTokenCount`, `candidatesTokenCount`, `thoughtsTokenCount` | thoughts not in the candidates, added to them    |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bylaw.model.canonical import json_type
from bylaw.model.events import Usage

_INPUT = ("input_tokens", "prompt_tokens", "inputTokens", "promptTokenCount", "prompt_token_count")
_OUTPUT = ("output_tokens", "completion_tokens", "outputTokens", "candidatesTokenCount", "candidates_token_count")
_THOUGHTS = ("thoughtsTokenCount", "thoughts_token_count")
"""Gemini counts these in addition to its candidates"""
_CACHED = ("cachedContentTokenCount", "cached_content_token_count")
_READ_OUTSIDE = "cache_read_input_tokens"
_WRITE_OUTSIDE = "cache_creation_input_tokens"
_WRITES_OUTSIDE = ("cached_write_5m_tokens", "cached_write_1h_tokens")
_READ_INSIDE = "cached_input_tokens"
_READ_ALWAYS_INSIDE = "cache_read_tokens"
"""pydantic-ai and Agno, which add what Anthropic counts apart"""
_WRITE_INSIDE = "cache_write_tokens"
_REASONING = ("thinking_tokens", "reasoning_tokens")

# where OpenAI stores the parts of a count: (mapping, key in it)
_DETAILS_READ = (("prompt_tokens_details", "cached_tokens"), ("input_tokens_details", "cached_tokens"))
_DETAILS_WRITE = (("prompt_tokens_details", "cache_write_tokens"), ("input_tokens_details", "cache_write_tokens"))
_DETAILS_REASONING = (
    ("completion_tokens_details", "reasoning_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
    ("details", "reasoning_tokens"),
)
_OTHERS = frozenset(
    (
        "prompt_tokens",
        "completion_tokens",
        *_WRITES_OUTSIDE,
        _READ_INSIDE,
        _READ_ALWAYS_INSIDE,
        _WRITE_INSIDE,
        *_REASONING,
        *(outer for outer, _ in (*_DETAILS_READ, *_DETAILS_REASONING)),
    )
)
"""all keys that are read, except those that Anthropic writes"""


def plain_usage(recorded: Any) -> Usage | None:
    """The fast path for the common case, because this runs once per turn; None if it does not apply."""
    if type(recorded) is not dict:
        return None
    input_tokens = recorded.get("input_tokens")
    output_tokens = recorded.get("output_tokens")
    reasoning = recorded.get("thinking_tokens")
    if type(input_tokens) is not int or type(output_tokens) is not int or input_tokens < 0 or output_tokens < 0:
        return None
    if reasoning is None:
        return Usage(input_tokens, output_tokens, recorded=recorded) if len(recorded) == 2 else None
    if len(recorded) != 3 or type(reasoning) is not int or not 0 <= reasoning <= output_tokens:
        return None
    return Usage(input_tokens, output_tokens, None, None, reasoning, recorded)


def read_usage(recorded: Any, model: str | None = None) -> tuple[Usage | None, list[str]]:
    """Normalised usage, and what could not be read in it. None if no usage is recorded."""
    if recorded is None:
        return None, []
    if not isinstance(recorded, dict):
        return None, [f"`usage` is {json_type(recorded)}, not an object, so it counts as not recorded"]
    usage = _anthropic_usage(recorded)
    return _read_slowly(recorded, model) if usage is None else (usage, [])


def _anthropic_usage(recorded: dict[str, Any]) -> Usage | None:
    """The fast path for what Anthropic writes; None if it does not apply."""
    input_tokens, output_tokens = recorded.get("input_tokens"), recorded.get("output_tokens")
    read, written = recorded.get(_READ_OUTSIDE), recorded.get(_WRITE_OUTSIDE)
    if type(input_tokens) is not int or type(output_tokens) is not int or not recorded.keys().isdisjoint(_OTHERS):
        return None
    if (read is not None and type(read) is not int) or (written is not None and type(written) is not int):
        return None
    if input_tokens < 0 or output_tokens < 0 or (read or 0) < 0 or (written or 0) < 0:
        return None
    return Usage(input_tokens + (read or 0) + (written or 0), output_tokens, read, written, None, recorded)


def _read_slowly(recorded: dict[str, Any], model: str | None) -> tuple[Usage, list[str]]:
    counts = _Counts(recorded)
    input_tokens = counts.first(_INPUT)
    output_tokens = counts.first(_OUTPUT)
    outside = [counts.get(key) for key in (_READ_OUTSIDE, _WRITE_OUTSIDE, *_WRITES_OUTSIDE)]
    read, written = outside[0], _sum([*outside[1:], counts.get(_WRITE_INSIDE)])
    if recorded.get("input_tokens") is None and (_sum(outside) or 0) <= (input_tokens or 0):
        outside = []  # a gateway that adds Anthropic's cache counts to an OpenAI prompt has counted them already
    inside = counts.get(_READ_INSIDE)
    if inside is not None:
        if inside > (input_tokens or 0) or (model or "").rpartition("/")[2].startswith("claude"):
            outside.append(inside)
        read = _sum([read, inside])
    if read is None and (read := counts.get(_READ_ALWAYS_INSIDE)) is not None and read > (input_tokens or 0):
        outside.append(read)
    input_tokens = _sum([input_tokens, *outside])
    thoughts, cached = counts.first(_THOUGHTS), counts.first(_CACHED)
    read = cached if read is None else read
    if thoughts is not None:
        output_tokens = (output_tokens or 0) + thoughts
    reasoning = counts.first(_REASONING) if thoughts is None else thoughts
    if reasoning is not None and reasoning > (output_tokens or 0):
        output_tokens = (output_tokens or 0) + reasoning
    usage = Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_input_tokens=counts.detail(_DETAILS_READ) if read is None else read,
        cache_write_tokens=counts.detail(_DETAILS_WRITE) if written is None else written,
        reasoning_tokens=counts.detail(_DETAILS_REASONING) if reasoning is None else reasoning,
        recorded=recorded,
    )
    return usage, counts.unread


class _Counts:
    """Reads counts from a mapping, and collects messages about values that are not counts."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self._recorded = recorded
        self.unread: list[str] = []

    def first(self, keys: tuple[str, ...]) -> int | None:
        return next((count for key in keys if (count := self.get(key)) is not None), None)

    def get(self, key: str) -> int | None:
        return self._count(self._recorded.get(key), key)

    def detail(self, places: tuple[tuple[str, str], ...]) -> int | None:
        for outer, key in places:
            details = self._recorded.get(outer)
            if isinstance(details, dict) and details.get(key) is not None:
                return self._count(details[key], f"{outer}.{key}")
        return None

    def _count(self, value: Any, name: str) -> int | None:
        if value is None or (type(value) is int and value >= 0):
            return value
        if isinstance(value, float) and value.is_integer() and value >= 0:
            return int(value)
        self.unread.append(not_a_count(name, value))
        return None


def not_a_count(name: str, value: Any) -> str:
    """The message about a value that is not a count of tokens."""
    kind = "negative" if isinstance(value, (int, float)) and value < 0 else json_type(value)
    problem = f"{value}, not a whole number" if isinstance(value, float) and value >= 0 else f"{kind}, not a count"
    return f"usage `{name}` is {problem}, so it counts as not recorded"


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def usage_from_counts(
    recorded: dict[str, Any],
    *,
    input: Any = None,
    output: Any = None,
    read: Any = None,
    written: Any = None,
    reasoning: Any = None,
) -> Usage | None:
    """Usage from single counts: a part that is larger than its whole was counted in addition to it."""
    if input is output is read is written is reasoning is None:
        return None
    counts = [count_of(value) for value in (input, output, read, written, reasoning)]
    if counts == [None] * 5:
        return None
    whole, out, cached, wrote, thought = counts
    outside = (cached or 0) + (wrote or 0)
    if whole is not None and outside > whole:
        whole += outside
    if out is not None and thought is not None and thought > out:
        out += thought
    return Usage(whole, out, cached, wrote, thought, recorded)


def count_of(value: Any) -> int | None:
    """A whole number of tokens, even if it was recorded as text."""
    if value is None or (type(value) is int and value >= 0):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None
