"""Conformance: does the candidate answer in the shape the baseline answered in?"""

from __future__ import annotations

from typing import Any

import msgspec

from bylaw.model.events import Response
from bylaw.model.values import json_type
from bylaw.traces.comparison.steps import arguments


def conforms(baseline: Response, candidate: Response | None) -> bool | None:
    """Whether the baseline's shape was kept; None where the baseline has no structured output and no call.

    Structured output keeps its shape if it is JSON of the same type and, for an object, with the same keys. Calls keep
    theirs if each baseline call has a candidate call of the same tool with the same argument keys.
    """
    structure = _structure(baseline.text)
    if structure is not None:
        return candidate is not None and _structure(candidate.text) == structure
    if not baseline.tool_calls:
        return None
    left = [] if candidate is None else [_call_shape(call) for call in candidate.tool_calls]
    for call in baseline.tool_calls:
        if _call_shape(call) not in left:
            return False
        left.remove(_call_shape(call))
    return True


def _structure(text: str | None) -> Any:
    """The type and keys of a text that is a JSON object or list, code fences allowed; None for prose."""
    stripped = _unfenced((text or "").strip())
    if not stripped.startswith(("{", "[")):
        return None
    try:
        value = msgspec.json.decode(stripped)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return ("object", frozenset(value)) if isinstance(value, dict) else (json_type(value),)


def _unfenced(text: str) -> str:
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```").strip()
    return text


def _call_shape(call: Any) -> tuple[str, Any]:
    given = arguments(call)
    return call.name, frozenset(given) if isinstance(given, dict) else json_type(given)
