"""Records in which an object has a key twice: this is reported, and values that rules look into stay text.

The arguments of a call and what a tool returned become the JSON text that they were recorded as. Text with a key twice
is not read by rules, so that no rule judges one of two values. Anywhere else the last one is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from bylaw.model.events import Event, Response, ToolCall, ToolResult
from bylaw.text.repeated_keys import repeated_key
from bylaw.traces.records.jsontext import REFUSED, Fault, decode_carefully, decode_quickly, decode_text, shorten
from bylaw.traces.records.lines import Block, DecodedRecord, make_decoded
from bylaw.traces.records.problems import Details, Place, Problems, problem_at

SMALL = 1 << 20
"""bytes of a file in which every object is searched for a key that stands twice; in larger ones only arguments that
were recorded as text are"""
_JUDGED = frozenset(
    ("arguments", "args", "input", "inputs", "parameters", "content", "output", "outputs", "result",
     "structuredContent")
)  # fmt: skip
"""keys of arguments and of results, in any format"""
_MESSAGE_KEYS = frozenset(("role", "messages", "tool_calls", "choices", "content", "generations"))
"""an object with one of these is a message or holds some, not data of a tool"""
_TWO_IDS = ("id", "web_search")
"""Codex always prints a search with two ids, its own and the provider's"""
_HELP = "programs differ in which of the two they use, so rules that look at it cannot judge it"


class _ObjectWithRepeats(dict[str, Any]):
    """An object that has a key twice."""

    pairs: list[tuple[str, Any]]


def keep_repeats(block: Block, problems: Problems) -> Iterator[tuple[bytes, int | Place]]:
    """The records of a block; those with a key twice are reported and written anew."""
    for raw, place in block:
        try:
            value = raw.value if type(raw) is DecodedRecord else decode_quickly(raw)
            if repeated_key(raw, value) is None:
                yield raw if type(raw) is DecodedRecord else make_decoded(raw, value), place
                continue
        except REFUSED:
            try:
                value = decode_carefully(decode_text(raw))[0]
            except Fault:  # reported by the reader
                yield raw, place
                continue
        key = repeated_key(raw, value)
        yield (raw if key is None else _rewrite(raw, place, problems)), place


def _rewrite(raw: bytes, place: int | Place, problems: Problems) -> bytes:
    left: list[str] = []
    try:
        mended = json.dumps(_mend(json.loads(raw, object_pairs_hook=_read), left)).encode()
    except (ValueError, RecursionError):
        mended, left = raw, ["?"]
    if left:
        message = f"the key `{shorten(left[0])}` is given twice in one object, and the last one is read"
        help = "other programs may have used the first one"
        problems.report(place, raw, code="duplicate-key", message=message, severity="warning", help=help)
    return mended


def _read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeating = _ObjectWithRepeats(found)
    repeating.pairs = pairs
    return repeating


def _mend(value: Any, left: list[str]) -> Any:
    """The value with arguments and results as text where a key stands twice; such keys elsewhere go to `left`."""
    if isinstance(value, list):
        return [_mend(one, left) for one in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value, _ObjectWithRepeats):
        keys = [key for key, _ in value.pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        if (repeated, value.get("type")) != _TWO_IDS:
            left.append(repeated)
    return {
        key: _write(one) if key in _JUDGED and _is_data(one) and _repeats(one) else _mend(one, left)
        for key, one in value.items()
    }


def _is_data(value: Any) -> bool:
    if isinstance(value, list):
        return not any(isinstance(one, dict) and ("type" in one or "role" in one) for one in value)
    return isinstance(value, dict) and _MESSAGE_KEYS.isdisjoint(value)


def _repeats(value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(value, _ObjectWithRepeats) or any(map(_repeats, value.values()))
    return isinstance(value, list) and any(map(_repeats, value))


def _write(value: Any) -> str:
    """JSON with both members of a key."""
    if isinstance(value, dict):
        pairs: Iterable[tuple[str, Any]] = value.pairs if isinstance(value, _ObjectWithRepeats) else value.items()
        return "{" + ", ".join(f"{json.dumps(key)}: {_write(one)}" for key, one in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write, value)) + "]"
    return json.dumps(value)


# What events hold as text


def warn_of_repeats(events: Sequence[Event], problems: Problems) -> None:
    """Report texts in which a key stands twice: arguments, and in small files results and responses too."""
    unparsed = (event for event in events if type(event) is ToolCall and event.arguments is None)
    for event in events if problems.checks_keys else unparsed:
        kind = type(event)
        if kind is ToolCall:
            if event.arguments is None and event.raw_arguments:  # type: ignore[attr-defined]
                _warn(event, event.raw_arguments, f"the arguments of this call of `{shorten(event.name)}`", problems)  # type: ignore[attr-defined]
        elif kind is ToolResult:
            _warn(event, event.content, "what this call returned", problems)  # type: ignore[attr-defined]
        elif kind is Response:
            _warn(event, event.text, "the JSON of this response", problems)  # type: ignore[attr-defined]


def _warn(event: Event, text: Any, noun: str, problems: Problems) -> None:
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return
    try:
        value = msgspec.json.decode(text)
    except (*REFUSED, UnicodeEncodeError):
        value = None
    key = repeated_key(text, value)
    if key is not None:
        have = "have" if noun.endswith("`") else "has"
        message = f"{noun} {have} the key `{shorten(key)}` twice"
        file, line = (problems.file, 1) if event.source is None else (event.source.file, event.source.line or 1)
        details = Details(code="duplicate-key", message=message, severity="warning", help=_HELP)
        problems.add(problem_at(file, line, text, 0, **details))
