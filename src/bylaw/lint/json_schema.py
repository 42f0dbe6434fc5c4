"""The JSON Schema of the rule file, from the same declarations that read it, so that editors complete and check it.

Written to `schema/rules.schema.json` by `python -m bylaw.lint.json_schema`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bylaw.contract.file.schema import contract_defs, contract_sections
from bylaw.model.condition import OPERATORS
from bylaw.rules.conditions import conditions_schema
from bylaw.rules.guard.enforcement import ACTIONS
from bylaw.rules.guard.schema import enforcement_properties, enforcement_together, guard_defs, guard_section
from bylaw.rules.kind import Kind
from bylaw.rules.kinds import KINDS
from bylaw.rules.must import MUST_KINDS
from bylaw.rules.param_types import TEXT_SCHEMA, TEXTS_SCHEMA
from bylaw.rules.params import Param
from bylaw.rules.paths import path_pattern
from bylaw.rules.policy import NOT_RUN, OTHERS, PLAIN_KEYS
from bylaw.rules.rule_fields import SCOPES, SEVERITIES
from bylaw.rules.schema_parts import closed_object, params_schema
from bylaw.rules.temporal.events import event_schema

SHIPPED = Path(__file__).parent / "schema" / "rules.schema.json"


def rule_file_schema() -> dict[str, Any]:
    rules = {"type": "array", "items": {"$ref": "#/$defs/rule"}, "description": "the rules that the agent must keep"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Bylaw rule file",
        "anyOf": [rules, _file(rules), {"$ref": "#/$defs/manifest"}],
        "$defs": {
            "rule": _either(),
            "behaviourRule": _behaviour_rule(),
            "severity": {"enum": list(SEVERITIES), "default": "error"},
            **guard_defs(),
            **contract_defs(),
            "condition": _condition(),
            "must": _must(),
            "event": event_schema(),
            **{f"{name}.params": {**params_schema(kind.params), **kind.together} for name, kind in KINDS.items()},
        },
    }


def render() -> str:
    return json.dumps(rule_file_schema(), indent=2, ensure_ascii=False) + "\n"


def _file(rules: dict[str, Any]) -> dict[str, Any]:
    others: dict[str, Any] = {key: {"description": "not read by `bylaw check`"} for key in (*OTHERS, *NOT_RUN)}
    plain: dict[str, Any] = {key: {} for key in PLAIN_KEYS}
    sections = {"rules": rules, "guard": guard_section(), **contract_sections()}
    return closed_object({**others, **sections, **plain}, required=[])


def _either() -> dict[str, Any]:
    return {
        "if": {"required": ["then"], "not": {"required": ["kind"]}},
        "then": {"$ref": "#/$defs/guardRule"},
        "else": {"$ref": "#/$defs/behaviourRule"},
    }


def _behaviour_rule() -> dict[str, Any]:
    properties = {
        "id": {**TEXT_SCHEMA, "description": "the rule's own name, unique in all rule files"},
        "kind": {"enum": list(KINDS), "description": "what the rule demands"},
        "params": {"type": "object", "description": "the parameters of the kind"},
        "when": {**conditions_schema(), "description": "conditions on a turn, all of which must hold"},
        "severity": {"$ref": "#/$defs/severity"},
        "scope": {
            "enum": list(SCOPES),
            "default": "trace",
            "description": "whether the rule is judged over the whole trace or in each session",
        },
        "description": {**TEXT_SCHEMA, "description": "why the rule exists; shown in reports"},
        "tags": {**TEXTS_SCHEMA, "description": "words to group rules by"},
        **enforcement_properties(),
    }
    restricting = [action for action in ACTIONS if action != "allow"]
    together = [*enforcement_together(restricting), *(_by_kind(kind) for kind in KINDS.values())]
    return {**closed_object(properties, required=["id", "kind", "params"]), "allOf": together}


def _by_kind(kind: Kind) -> dict[str, Any]:
    return {
        "if": {"properties": {"kind": {"const": kind.name}}, "required": ["kind"]},
        "then": {
            "properties": {
                "kind": {"description": kind.summary},
                "params": {"$ref": f"#/$defs/{kind.name}.params"},
            }
        },
    }


def _condition() -> dict[str, Any]:
    properties: dict[str, Any] = {
        "path": {
            "type": "string",
            "pattern": path_pattern(),
            "description": "a dotted path into the turn, such as `request.params.amount`",
        },
        "op": {"enum": list(OPERATORS)},
        "value": {"description": "what to compare with"},
    }
    return {
        **closed_object(properties, required=["path", "op", "value"]),
        "allOf": [
            _value_for([">", ">=", "<", "<="], {"type": "number"}),
            _value_for(["in", "not_in"], {"type": "array"}),
        ],
    }


def _value_for(operators: list[str], value: dict[str, Any]) -> dict[str, Any]:
    return {
        "if": {"properties": {"op": {"enum": operators}}, "required": ["op"]},
        "then": {"properties": {"value": value}},
    }


def _must() -> dict[str, Any]:
    return {"oneOf": [_must_kind(kind, params) for kind, params in MUST_KINDS.items()]}


def _must_kind(kind: str, params: tuple[Param, ...]) -> dict[str, Any]:
    schema = params_schema(params)
    schema["properties"] = {"kind": {"const": kind}, **schema["properties"]}
    schema["required"] = ["kind", *schema["required"]]
    return schema


if __name__ == "__main__":
    SHIPPED.write_text(render(), "utf-8")
