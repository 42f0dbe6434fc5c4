"""What callers hand to `check_compliance`, checked before anything is done: nonsense is an error, never a verdict."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.trace import Trace
from bylaw.traces import load_trace

_DEEPEST = 100


def checked_aliases(aliases: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
    if aliases is None:
        return {}
    if not isinstance(aliases, Mapping):
        raise TypeError(f"aliases must map words to tools, not be {type(aliases).__name__}")
    return {_words(words): _names(words, tools) for words, tools in aliases.items()}


def _words(words: Any) -> str:
    if not isinstance(words, str) or not words.strip():
        raise TypeError(f"aliases: {words!r} is no word of a prompt")
    return words


def _names(words: str, tools: Any) -> list[str]:
    names = [tools] if isinstance(tools, str) else tools
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"aliases[{words!r}] must be a tool's name or a list of them")
    return list(names)


def seconds_in(timeout_ms: Any) -> float:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise TypeError(f"timeout_ms must be a number, not {type(timeout_ms).__name__}")
    if not math.isfinite(timeout_ms) or timeout_ms <= 0:
        raise ValueError(f"timeout_ms={timeout_ms}: expected more than 0")
    return timeout_ms / 1000


def as_trace(given: Any) -> Trace:
    if isinstance(given, Trace):
        return given
    if isinstance(given, list | tuple):
        _refuse_odd_values(given)
        return load_trace(list(given), format=_format_of(given))
    if isinstance(given, str | os.PathLike | bytes | bytearray | memoryview | dict) or hasattr(given, "read"):
        return load_trace(given)
    raise TypeError(f"trace_events must be a list of events or a trace, not {type(given).__name__}")


def _format_of(events: Sequence[Any]) -> str | None:
    """Elements with a `type` are events, known ones or not; so are elements that are no objects, and none at all."""
    if any(isinstance(event, dict) and "type" not in event for event in events):
        return None
    return "events"


def _refuse_odd_values(events: Sequence[Any]) -> None:
    for place, event in enumerate(events):
        odd = _odd(event, f"trace_events[{place}]", 0)
        if odd is not None:
            path, what = odd
            help = "give it as text, number, list or mapping"
            raise InputError([Diagnostic(code="wrong-type", message=f"`{path}` is {what}", file="trace", help=help)])


def _odd(value: Any, path: str, depth: int) -> tuple[str, str] | None:
    """The first place inside that JSON has no form for."""
    if value is None or isinstance(value, str | bool | int) or callable(getattr(value, "model_dump", None)):
        return None
    if depth > _DEEPEST:
        return path, f"nested more than {_DEEPEST} levels deep"
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, f"`{value}`, which JSON cannot hold")
    if isinstance(value, dict):
        keys = (key for key in value if not isinstance(key, str))
        odd_key = next(keys, None)
        if odd_key is not None:
            return path, f"a mapping with the key `{odd_key}`, which is no text"
        found = (_odd(one, f"{path}.{key}", depth + 1) for key, one in value.items())
    elif isinstance(value, list | tuple):
        found = (_odd(one, f"{path}[{place}]", depth + 1) for place, one in enumerate(value))
    else:
        return path, f"of the type `{type(value).__name__}`, which is not JSON"
    return next((odd for odd in found if odd is not None), None)
