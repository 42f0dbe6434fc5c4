"""The JSON Schema of a contract, from the tables that read it."""

from __future__ import annotations

from typing import Any

from bylaw.contract.file.agent import AGENT
from bylaw.contract.file.faults import ATTACK, LLM_FAULT, OK, SEQUENCE, STEP, TOOL_FAULT
from bylaw.contract.file.invariants import CHECKS, INVARIANT, SHORT
from bylaw.contract.file.loader import MATRIX_SCHEMA, SECTION
from bylaw.contract.file.scenarios import PROFILES, SCENARIO
from bylaw.contract.file.sections import PROMPT, SCORING
from bylaw.contract.file.types import Table, Variants
from bylaw.rules.params import TEXTS_SCHEMA, Param, params_schema


def contract_sections() -> dict[str, Any]:
    """The sections of a file that make up a contract."""
    prompt = {"anyOf": [TEXTS_SCHEMA, _table(PROMPT)]}
    return {
        "contract": {**_table(SECTION), "description": "what must hold of the live agent"},
        "chaos_matrix": MATRIX_SCHEMA,
        "agent": {**_table(AGENT), **_needs(AGENT), "description": "how the agent is reached"},
        "golden_prompts": {"type": "array", "items": prompt, "minItems": 1, "description": "what it is asked"},
        "scoring": {**_table(SCORING), "description": "what each part weighs in `bylaw ci`"},
    }


def contract_defs() -> dict[str, Any]:
    return {
        "invariant": _invariant(),
        "scenario": _table(SCENARIO),
        "toolFault": _tool_fault(),
        "llmFault": _variants(LLM_FAULT),
        "contextAttack": _variants(ATTACK),
        "profile": {"oneOf": [{"const": name, "description": one.doc} for name, one in PROFILES.items()]},
    }


def _invariant() -> dict[str, Any]:
    """An invariant with a `type`, or one of the types that may be keys themselves."""
    short = _table(INVARIANT)
    for name, param in SHORT.items():
        own: dict[str, Any] = params_schema(CHECKS[name].params)
        if param is not None:
            own = {"anyOf": [own, own["properties"][param]]}
        elif not CHECKS[name].params:
            own = {"const": True}
        short["properties"][name] = {**own, "description": CHECKS[name].doc}
    short |= {"anyOf": [{"required": [name]} for name in SHORT]}
    written_out = _variants(INVARIANT, {name: check.doc for name, check in CHECKS.items()})
    return {"if": {"required": ["type"]}, "then": written_out, "else": short}


def _tool_fault() -> dict[str, Any]:
    sequence = _table(SEQUENCE)
    step = {"anyOf": [{"enum": [OK, *STEP.kinds]}, _variants(STEP)]}
    sequence["properties"]["sequence"] |= {"type": "array", "items": step, "minItems": 1}
    return {"if": {"required": ["sequence"]}, "then": sequence, "else": _variants(TOOL_FAULT), **_needs(TOOL_FAULT)}


def _table(table: Table, params: tuple[Param, ...] = ()) -> dict[str, Any]:
    schema = params_schema((*table.params, *params))
    schema["properties"] |= {key: {} for key in table.unused}
    return schema


def _needs(table: Table) -> dict[str, Any]:
    return {"anyOf": [{"required": [key]} for key in table.needs]}


def _variants(variants: Variants, docs: dict[str, str] | None = None) -> dict[str, Any]:
    """The key that decides, and for each of its values the other keys."""
    choices = []
    for tag, params in variants.kinds.items():
        schema = _table(variants, params)
        schema["properties"][variants.key] = {"const": tag, **({"description": docs[tag]} if docs else {})}
        condition = {"properties": {variants.key: {"const": tag}}, "required": [variants.key]}
        choices.append({"if": condition, "then": schema})
    tags = {"enum": list(variants.kinds)}
    return {"type": "object", "properties": {variants.key: tags}, "required": [variants.key], "allOf": choices}
