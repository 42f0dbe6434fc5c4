"""Live objects of Python libraries as JSON: results of runs, messages, spans. By what they can do, not by their type.

No framework is imported: a result knows its messages, a model dumps itself, a dataclass has fields.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from enum import Enum
from typing import Any

_MESSAGES = ("all_messages", "to_input_list")
"""what results of runs have: pydantic-ai's, and those of the OpenAI Agents SDK"""
_DUMPS = ("to_input_item", "model_dump", "to_dict", "_asdict")
_TEXTS = (date, time)


def encode(value: Any) -> str:
    """JSON of an object and of all that it holds. Raises TypeError, ValueError, RecursionError."""
    named = isinstance(value, tuple) and _dump_of(value) is not None  # `json` would write a list
    return json.dumps(plain(value) if named else value, allow_nan=False, default=plain)


def elements(value: Any) -> list[Any] | None:
    """The messages, spans or records that an object consists of; None if it is one value."""
    for name in _MESSAGES:
        if callable(found := getattr(value, name, None)):
            value = found()
            break
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable) or _dump_of(value) is not None:
        return None
    return list(value)


def plain(value: Any) -> Any:
    """What an object says, one level deep; `json` asks again for what is inside. Raises TypeError."""
    for name in _MESSAGES:
        if callable(found := getattr(value, name, None)):
            return found()
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "to_input_items") and hasattr(value, "output"):  # a response in a result of the Agents SDK
        usage = getattr(value, "usage", None)
        return {
            "output": value.output,
            "usage": {} if usage is None else usage,
            "response_id": getattr(value, "response_id", None),
        }
    if (dump := _dump_of(value)) is not None:
        return _dump_model(dump)
    if callable(shown := getattr(value, "to_json", None)):  # spans of OpenTelemetry, a run's state of the Agents SDK
        text = shown()
        return json.loads(text) if isinstance(text, str) else text
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(fields := getattr(value, "__struct_fields__", None), tuple):
        return {name: getattr(value, name) for name in fields}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, _TEXTS):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Iterable):
        return list(value)
    if type(value).__module__ in ("decimal", "uuid", "pathlib", "fractions"):
        return str(value)
    raise TypeError(f"`{type(value).__name__}` is not JSON")


def _dump_model(dump: Any) -> Any:
    """Models of pydantic write a field as its declared class, unless asked for all of it: messages would lack calls."""
    if getattr(dump, "__name__", "") == "model_dump":
        with suppress(TypeError):  # of another library, or of an older version
            return dump(serialize_as_any=True)
    return dump()


def _dump_of(value: Any) -> Any:
    if isinstance(value, type):
        return None
    for name in _DUMPS:
        if callable(found := getattr(value, name, None)):
            return found
    return None
