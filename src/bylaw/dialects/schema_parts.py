"""What the JSON Schemas of the rule file share."""

from __future__ import annotations

from typing import Any

from bylaw.dialects.fields import EXTENSION


def closed_object(properties: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    """A mapping with these keys, keys of the user's own, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "patternProperties": {f"^{EXTENSION}": {}},
        "required": required,
        "additionalProperties": False,
    }
