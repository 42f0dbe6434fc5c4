"""The JSON Schema of a contract, from the tables that read it."""

from __future__ import annotations

from typing import Any

from bylaw.contract.file.agent import PARAMS as AGENT
from bylaw.contract.file.checks import CHECKS
from bylaw.contract.file.file import PARAMS as CONTRACT
from bylaw.contract.file.invariants import INVARIANT
from bylaw.contract.file.modes import ATTACK, LLM_FAULT, TARGET, TOOL_FAULT
from bylaw.contract.file.profiles import PROFILES
from bylaw.contract.file.scoring import ELSEWHERE, PARTS
from bylaw.contract.file.sequences import OK
from bylaw.contract.file.variants import Variants
from bylaw.rules.param_types import TEXT_SCHEMA
from bylaw.rules.schema_parts import closed_object, params_schema


def contract_sections() -> dict[str, Any]:
    """The sections of a file that make up a contract."""
    return {
        "contract": _contract(),
        "chaos_matrix": _matrix(),
        "agent": {**_agent(), "description": "how the agent is reached"},
        "golden_prompts": {"type": "array", "items": _prompt(), "minItems": 1, "description": "what it is asked"},
        "scoring": _scoring(),
    }


def contract_defs() -> dict[str, Any]:
    return {
        "invariant": _variants(INVARIANT, {name: check.doc for name, check in CHECKS.items()}),
        "scenario": _scenario(),
        "toolFault": _tool_fault(),
        "llmFault": _variants(LLM_FAULT, {}),
        "contextAttack": _variants(ATTACK, {}),
        "profile": {"oneOf": [{"const": name, "description": one.doc} for name, one in PROFILES.items()]},
    }


def _contract() -> dict[str, Any]:
    schema = params_schema(CONTRACT)
    schema["properties"]["invariants"] = {"type": "array", "items": {"$ref": "#/$defs/invariant"}, "minItems": 1}
    schema["properties"]["chaos_matrix"] = _matrix()
    return {**schema, "required": ["name", "invariants"], "description": "what must hold of the live agent"}


def _matrix() -> dict[str, Any]:
    one = {"anyOf": [{"$ref": "#/$defs/scenario"}, {"$ref": "#/$defs/profile"}]}
    return {"type": "array", "items": one, "minItems": 1, "description": "the scenarios that it must hold in"}


def _agent() -> dict[str, Any]:
    return {**params_schema(AGENT), "anyOf": [{"required": ["endpoint"]}, {"required": ["command"]}]}


def _prompt() -> dict[str, Any]:
    marked = closed_object({"prompt": TEXT_SCHEMA, "dangerous": {"type": "boolean"}}, required=["prompt"])
    return {"anyOf": [TEXT_SCHEMA, marked]}


def _scoring() -> dict[str, Any]:
    weight = {"type": "number", "minimum": 0}
    parts: dict[str, Any] = {key: {**weight, "description": f"what `{part}` weighs"} for key, part in PARTS.items()}
    return {
        **closed_object({**parts, **{key: {} for key in ELSEWHERE}}, required=[]),
        "description": "what each part weighs in `bylaw ci`",
    }


def _scenario() -> dict[str, Any]:
    attack = {"$ref": "#/$defs/contextAttack"}
    by_type = {"type": "object", "propertyNames": {"enum": list(ATTACK.kinds)}}
    profiles = {"$ref": "#/$defs/profile"}
    properties = {
        "name": {**TEXT_SCHEMA, "description": "what reports call it"},
        "description": TEXT_SCHEMA,
        "tool_faults": {"type": "array", "items": {"$ref": "#/$defs/toolFault"}},
        "llm_faults": {"type": "array", "items": {"$ref": "#/$defs/llmFault"}},
        "context_attacks": {"anyOf": [{"type": "array", "items": attack}, by_type]},
        "profile": profiles,
        "profiles": {"anyOf": [profiles, {"type": "array", "items": profiles}]},
    }
    return closed_object(properties, required=["name"])


def _tool_fault() -> dict[str, Any]:
    target = params_schema(TARGET)["properties"]
    steps = {"anyOf": [{"enum": [OK, *TOOL_FAULT.kinds]}, _steps()]}
    sequence = closed_object(
        {**target, "sequence": {"type": "array", "items": steps, "minItems": 1}}, required=["sequence"]
    )
    hits: dict[str, Any] = {"anyOf": [{"required": [key]} for key in TOOL_FAULT.needs]}
    return {"if": {"required": ["sequence"]}, "then": sequence, "else": _variants(TOOL_FAULT, {}), **hits}


def _steps() -> dict[str, Any]:
    return _variants(Variants(TOOL_FAULT.what, TOOL_FAULT.key, TOOL_FAULT.tag, TOOL_FAULT.kinds, common=()), {})


def _variants(variants: Variants, docs: dict[str, str]) -> dict[str, Any]:
    """By its deciding key each mapping has keys of its own."""
    choices = [_variant(variants, name, docs.get(name)) for name in variants.kinds]
    tag = {"enum": list(variants.kinds)}
    return {"type": "object", "properties": {variants.key: tag}, "required": [variants.key], "allOf": choices}


def _variant(variants: Variants, name: str, doc: str | None) -> dict[str, Any]:
    schema = params_schema((*variants.common, *variants.kinds[name]))
    schema["properties"] |= {variants.key: {"const": name, **({"description": doc} if doc else {})}}
    schema["properties"] |= {key: {} for key in variants.unused}
    return {"if": {"properties": {variants.key: {"const": name}}, "required": [variants.key]}, "then": schema}
