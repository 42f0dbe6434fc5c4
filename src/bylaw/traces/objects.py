"""Traces that are Python objects already: lists and dicts in the shapes that files have."""

from __future__ import annotations

import json
from typing import Any

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.traces.records.layout import Layout
from bylaw.traces.records.opening import Input, open_bytes


def open_object(value: Any, name: str) -> tuple[Input, Layout]:
    """As if it had been read from a file, one element a line. Raises InputError where it is not JSON."""
    try:
        if isinstance(value, (list, tuple)):
            text = "[" + ",\n".join(map(_encode, value)) + "]"
            return open_bytes(text.encode(), name), Layout.LIST
        return open_bytes(_encode(value).encode(), name), Layout.VALUE
    except (TypeError, ValueError, RecursionError) as error:
        message = f"`{name}` cannot be read as JSON: {str(error).lower()}"
        raise InputError([Diagnostic(code="wrong-type", message=message, file=name)]) from None


def _encode(value: Any) -> str:
    return json.dumps(value, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Messages of the providers' Python libraries are models that can say what they hold."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"`{type(value).__name__}` is not JSON")
    return dump()
