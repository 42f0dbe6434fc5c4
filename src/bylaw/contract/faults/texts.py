"""What faults and attacks do to texts: to answers of models, and to all that an agent reads.

An attack has a text of its own, which goes into a prompt, a tool's result, or a request to a model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any, TypeAlias

import msgspec

from bylaw.contract.faults import ContextAttack, LlmFault, ToolFault
from bylaw.contract.faults.effects import MAX_DEPTH
from bylaw.wire.formats.base import Json, WireFormat, first_words, words

# Answers of models

_NONSENSE = ("qzx", "vlorp", "##@", "\ufffd\ufffd", "undefined", "%s", "NaN", "}{", "skrn", "0x00", "]]>", "tsoh",
             "null", "frabj")  # fmt: skip
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


def altered_text(text: str, fault: LlmFault, random: Random) -> str:
    """The text as the fault changes it; equal if the fault finds nothing to change."""
    match fault.mode:
        case "truncated_response" | "stream_cut":
            return first_words(text, fault.max_tokens or 0)
        case "garbage":
            return " ".join(random.choices(_NONSENSE, k=max(5, min(200, len(text.split())))))
        case "empty":
            return ""
        case "response_drift":
            return drift_answer(text, fault, random)
    return text


def truncate_arguments(text: str) -> str:
    """The JSON of a call's arguments, cut so that it is not JSON."""
    return text[: len(text) // 2].rstrip() if len(text) > 4 else '{"'


def drift_answer(text: str, fault: LlmFault, random: Random) -> str:
    """The answer as another version of the model might give it."""
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
    inside = json_container(fenced.group(1) if fenced else text)
    if inside is None:
        return text
    renamed = msgspec.json.encode(_rename_keys(inside, 0)).decode()
    return f"```json\n{renamed}\n```" if fenced else renamed


def _rename_keys(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_rename_keys(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_RENAMES.get(key, f"{key}_value"): _rename_keys(item, depth + 1) for key, item in value.items()}
    return value


def _other_length(text: str, direction: str, factor: float, random: Random) -> str:
    count = len(words(text))
    if direction == "compress":
        return first_words(text, max(1, round(count / max(factor, 1))))
    wanted, longer = round(count * factor), text
    while len(longer) < 1_000_000 and len(words(longer)) < wanted:
        longer = f"{longer} {random.choice(_PADDING)}"
    return longer


def _other_format(text: str) -> str:
    """JSON becomes prose, prose becomes a list in Markdown."""
    fenced = _FENCE.match(text)
    inside = json_container(fenced.group(1) if fenced else text)
    if isinstance(inside, dict):
        return "Here is what I found. " + " ".join(f"The {key} is {as_text(value)}." for key, value in inside.items())
    if isinstance(inside, list):
        return "Here is what I found: " + ", ".join(as_text(item) for item in inside) + "."
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]
    return "## Answer\n\n" + "\n".join(f"- **{sentence}**" for sentence in sentences) if sentences else text


def as_text(value: Any) -> str:
    """A text as it is, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _other_tone(text: str) -> str:
    for pattern, instead in _CASUAL:
        text = re.sub(pattern, instead, text)
    return f"Hey there! {text} Hope that helps, cheers!" if text else text


def json_container(text: str) -> Any:
    """The object or list that a text holds as JSON; None if it holds none."""
    try:
        inside = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return inside if isinstance(inside, dict | list) else None


# Attacks

_FILLER = ("report", "quarter", "lists", "further", "items", "filed", "under", "the", "usual", "heading", "as",
           "before")  # fmt: skip
_Path: TypeAlias = tuple[Any, ...]


def attack_text(attack: ContextAttack, random: Random) -> str:
    """The text to insert; the same for the same seed."""
    if attack.type == "overflow":
        return " ".join(random.choices(_FILLER, k=attack.inject_tokens or 0))
    return random.choice(attack.payloads)


def effective(attacks: Sequence[ContextAttack]) -> list[ContextAttack]:
    """Attacks on one text in the order in which all of them are in it: the one that replaces it comes first.

    Of several that replace it, only the last would be left.
    """
    replacing = [attack for attack in attacks if attack.strategy == "replace"]
    return [*replacing[-1:], *(attack for attack in attacks if attack.strategy != "replace")]


def attack_strategy(strategy: str, fault: ToolFault | None) -> str:
    """How an attack goes into a result that a fault has changed: it does not replace what the fault put there."""
    is_changed = fault is not None and fault.mode not in ("slow", "slow_body", "jitter")
    return "prepend" if is_changed and strategy == "replace" else strategy


def combine_texts(text: str, addition: str, strategy: str) -> str:
    """A text with another one before, after or instead of it."""
    if strategy == "replace":
        return addition
    parts = (addition, text) if strategy == "prepend" else (text, addition)
    return "\n\n".join(part for part in parts if part)


def attack_request(wire: WireFormat, request: Json, attack: ContextAttack, random: Random) -> bool:
    """Put an attack into the messages of a request, in place; False if there is no place for it."""
    text = attack_text(attack, random)
    if not text:
        return False
    if attack.type == "memory_poisoning":
        wire.insert(request, attack.inject_at, text)
        return True
    return wire.edit_prompt(request, lambda prompt: combine_texts(prompt, text, attack.strategy))


def attack_result(value: Any, text: str, strategy: str) -> Any:
    """A tool's result with the attack in its longest text, which a reader of the result is sure to read."""
    if isinstance(value, str):
        inside = json_container(value)
        if inside is None:
            return combine_texts(value, text, strategy)
        return msgspec.json.encode(attack_result(inside, text, strategy)).decode()
    path = _path_to_longest_text(value)
    if path is not None:
        return _insert_text_at(value, path, text, strategy)
    if isinstance(value, dict):
        return {**value, "note": text}
    return [*value, text] if isinstance(value, list) else text


def _path_to_longest_text(value: Any) -> _Path | None:
    best: tuple[int, _Path] | None = None
    waiting: list[tuple[Any, _Path]] = [(value, ())]
    while waiting:
        item, path = waiting.pop()
        if isinstance(item, str):
            if best is None or len(item) >= best[0]:
                best = (len(item), path)
        elif len(path) < MAX_DEPTH and isinstance(item, dict | list):
            inner = item.items() if isinstance(item, dict) else enumerate(item)
            waiting += [(part, (*path, key)) for key, part in inner]
    return None if best is None else best[1]


def _insert_text_at(value: Any, path: _Path, text: str, strategy: str) -> Any:
    if not path:
        return combine_texts(value, text, strategy)
    clone = dict(value) if isinstance(value, dict) else list(value)
    clone[path[0]] = _insert_text_at(value[path[0]], path[1:], text, strategy)
    return clone
