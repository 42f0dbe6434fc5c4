"""What the JSON Schemas of the rule file share."""

from __future__ import annotations

from typing import Any

from bylaw.rules.fields import EXTENSION
from bylaw.rules.params import Param


def closed_object(properties: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    """A mapping with these keys, keys of the user's own, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "patternProperties": {f"^{EXTENSION}": {}},
        "required": required,
        "additionalProperties": False,
    }


def params_schema(params: tuple[Param, ...]) -> dict[str, Any]:
    """One object; a parameter with several names must be given under exactly one of them."""
    properties = {name: _property(param, name) for param in params for name in param.spellings}
    required = [param.name for param in params if param.required and len(param.spellings) == 1]
    choices = [_one_of(list(param.spellings)) for param in params if param.required and len(param.spellings) > 1]
    return {**closed_object(properties, required=required), **({"allOf": choices} if choices else {})}


def _property(param: Param, name: str) -> dict[str, Any]:
    default = {} if param.default is None else {"default": param.default}
    return {**param.spellings[name].json_schema, "description": param.doc, **default}


def _one_of(names: list[str]) -> dict[str, Any]:
    return {"oneOf": [{"required": [name]} for name in names]}
