"""Redact the texts of records whose other fields are ids and times.

Ids and times must stay as they are: the parts of a trace refer to each other by them, and some look like the number of
a card. An id among the texts that has to be removed is replaced by a digest, so that different sessions stay different.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bylaw.text.redaction.redactor import pseudonym

_DEEPEST = 50
"""levels that are searched for the fields; what lies deeper is redacted as a whole"""


def redact_fields(value: Any, fields: Collection[str], redact: Callable[[Any], Any], level: int = 0) -> Any:
    """The value, with everything under one of the fields redacted, wherever the field stands."""
    if level > _DEEPEST:
        return redact(value)
    if isinstance(value, list):
        return [redact_fields(one, fields, redact, level + 1) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _with_ids(one, redact(one), key) if key in fields else redact_fields(one, fields, redact, level + 1)
        for key, one in value.items()
    }


def _with_ids(value: Any, redacted: Any, name: str) -> Any:
    """The redacted value, with a digest for each id that was removed. `name`: the key that the value stands under."""
    if isinstance(value, list) and isinstance(redacted, list):
        return [_with_ids(one, other, name) for one, other in zip(value, redacted, strict=True)]
    if isinstance(value, dict) and isinstance(redacted, dict):
        named = value.get("key")  # OTLP's `{"key": "session.id", "value": {"stringValue": …}}`
        return {
            key: _with_ids(value[key], one, named if isinstance(named, str) else name if key.endswith("Value") else key)
            if key in value
            else one
            for key, one in redacted.items()
        }
    if isinstance(value, str) and value != redacted and (name == "id" or name.endswith(("_id", ".id", "Id"))):
        return pseudonym(value)
    return redacted
