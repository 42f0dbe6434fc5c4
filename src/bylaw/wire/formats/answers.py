"""What a fault makes of the text a model answers: pure functions, the same for every wire format."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import msgspec

from bylaw.contract.faults import LlmFault
from bylaw.wire.formats.base import first_words, pieces

DEFAULT_WORDS = 10
"""of a truncated answer"""
_NONSENSE = (
    "qzx",
    "vlorp",
    "##@",
    "\ufffd\ufffd",
    "undefined",
    "%s",
    "NaN",
    "}{",
    "skrn",
    "0x00",
    "]]>",
    "tsoh",
    "null",
    "frabj",
)
_REFUSAL = "I'm sorry, but I'm not able to help with that request as it is."
_RENAMES = {"id": "identifier", "name": "title", "status": "state", "result": "output", "price": "cost",
            "total": "sum", "date": "day", "message": "text", "error": "problem", "amount": "value"}  # fmt: skip
_PADDING = (
    "To put this into a wider context, let me go over it once more in detail.",
    "It is worth noting that several considerations come into play here.",
    "In other words, what was said above can be restated as follows.",
    "Please keep in mind that this depends on a number of further factors.",
)
_CASUAL = ((r"\bI am\b", "I'm"), (r"\bcannot\b", "can't"), (r"\bdo not\b", "don't"), (r"\bPlease\b", "Pls"),
           (r"\.(\s|$)", r"!\1"))  # fmt: skip
_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
MAX_DEPTH = 64


def altered_text(text: str, fault: LlmFault, random: Random) -> str:
    """The text as the fault leaves it; equal to the given one where it finds nothing to change."""
    match fault.mode:
        case "truncated_response" | "stream_cut":
            return first_words(text, words_left(fault))
        case "garbage":
            return garbage(text, random)
        case "empty":
            return ""
        case "response_drift":
            return drifted(text, fault, random)
    return text


def words_left(fault: LlmFault) -> int:
    return DEFAULT_WORDS if fault.max_tokens is None else fault.max_tokens


def garbage(text: str, random: Random) -> str:
    """As many words of nonsense."""
    return " ".join(random.choices(_NONSENSE, k=max(5, min(200, len(text.split())))))


def broken_arguments(text: str) -> str:
    """The JSON of a call's arguments, cut so that it is none."""
    return text[: len(text) // 2].rstrip() if len(text) > 4 else '{"'


# Drift: what another version of a model may do to the same answer


def drifted(text: str, fault: LlmFault, random: Random) -> str:
    match fault.drift_type:
        case "json_field_rename":
            return _renamed_json(text)
        case "verbosity_shift":
            return _other_length(text, fault.direction or "expand", fault.factor, random)
        case "format_change":
            return _other_format(text)
        case "refusal_rephrase":
            return _REFUSAL
        case "tone_shift":
            return _other_tone(text)
    return text


def _renamed_json(text: str) -> str:
    fenced = _FENCE.match(text)
    inside = _json(fenced.group(1) if fenced else text)
    if inside is None:
        return text
    renamed = msgspec.json.encode(_renamed(inside, 0)).decode()
    return f"```json\n{renamed}\n```" if fenced else renamed


def _renamed(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_renamed(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_RENAMES.get(key, f"{key}_value"): _renamed(item, depth + 1) for key, item in value.items()}
    return value


def _other_length(text: str, direction: str, factor: float, random: Random) -> str:
    words = len(pieces(text))
    if direction == "compress":
        return first_words(text, max(1, round(words / max(factor, 1))))
    wanted, longer = round(words * factor), text
    while len(longer) < 1_000_000 and len(pieces(longer)) < wanted:
        longer = f"{longer} {random.choice(_PADDING)}"
    return longer


def _other_format(text: str) -> str:
    """JSON becomes prose, prose becomes a list in Markdown."""
    fenced = _FENCE.match(text)
    inside = _json(fenced.group(1) if fenced else text)
    if isinstance(inside, dict):
        return "Here is what I found. " + " ".join(f"The {key} is {_said(value)}." for key, value in inside.items())
    if isinstance(inside, list):
        return "Here is what I found: " + ", ".join(_said(item) for item in inside) + "."
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]
    return "## Answer\n\n" + "\n".join(f"- **{sentence}**" for sentence in sentences) if sentences else text


def _said(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _other_tone(text: str) -> str:
    for pattern, instead in _CASUAL:
        text = re.sub(pattern, instead, text)
    return f"Hey there! {text} Hope that helps, cheers!" if text else text


def _json(text: str) -> Any:
    try:
        inside = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return inside if isinstance(inside, dict | list) else None
