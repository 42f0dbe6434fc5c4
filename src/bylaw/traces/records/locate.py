"""Find the value at a path in JSON text, so that a problem can point at it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_SPACE = re.compile(r"[ \t\n\r]*")
_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
_value_end = json.JSONDecoder(strict=False).raw_decode


def locate(text: str, path: Sequence[str | int]) -> int:
    """Offset of the value at `path`, or of the deepest part of the path that is there. `text` is valid JSON."""
    at = _skip_space(text, 0)
    for step in path:
        found = _member(text, at, step) if isinstance(step, str) else _element(text, at, step)
        if found is None:
            break
        at = found
    return at


def parse_path(text: str) -> list[str | int]:
    """The steps of a path as the JSON decoder writes it, such as `$.payload.messages[0]`."""
    return [int(index) if index else key for key, index in _STEP.findall(text)]


def _member(text: str, at: int, key: str) -> int | None:
    if text[at] != "{":
        return None
    at = _skip_space(text, at + 1)
    found = None
    while text[at] != "}":
        name, at = _value_end(text, at)
        at = _skip_space(text, _skip_space(text, at) + 1)
        if name == key:
            found = at  # of two equal keys the last one counts
        at = _next(text, at)
    return found


def _element(text: str, at: int, index: int) -> int | None:
    if text[at] != "[":
        return None
    at = _skip_space(text, at + 1)
    while text[at] != "]":
        if index == 0:
            return at
        index -= 1
        at = _next(text, at)
    return None


def _next(text: str, at: int) -> int:
    """From the start of one value to the start of the next, or to the closing bracket."""
    _, at = _value_end(text, at)
    at = _skip_space(text, at)
    return _skip_space(text, at + 1) if text[at] == "," else at


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
