"""The JSON Schema of the rule file, from the declarations that read it, so that editors complete and check it.

Written to `schema/rules.schema.json` by `python -m bylaw.lint.json_schema`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bylaw.contract.file.loader import contract_defs, contract_sections
from bylaw.diff.expectations import EXPECTED_SCHEMA
from bylaw.model.rule import MODES as EXECUTION_MODES
from bylaw.rules.conditions import conditions_schema
from bylaw.rules.guard.manifest import LABEL_KEYS, MODE_KEYS, STATUSES, TOOL_KEYS
from bylaw.rules.guard.manifest_documents import DOCUMENT_KEYS, VERSION_KEYS
from bylaw.rules.kinds import KINDS, Kind
from bylaw.rules.operators import OVER, REACHES, SECONDS, comparison_schema
from bylaw.rules.params import TEXT_SCHEMA, TEXTS_SCHEMA, params_schema
from bylaw.rules.paths import path_pattern
from bylaw.rules.policy import NOT_RUN, OTHERS, PLAIN_KEYS
from bylaw.rules.predicates import BOUNDS, MEMBERSHIP, OPERATORS, PATTERNS, PRESENCE, TEXTS
from bylaw.rules.readers import closed_object
from bylaw.rules.rule import ACTIONS, MODES, SCOPES, SEVERITIES

_GROUP = {"$ref": "#/$defs/predicates"}
_ARGUMENT = {**TEXT_SCHEMA, "description": "where in the arguments: `amount`, `body.to`, `recipients.*`"}
_NOT_BOTH: dict[str, Any] = {"not": {"required": ["mode", "shadow"]}}


def _enforcement_properties() -> dict[str, Any]:
    """The optional keys of a behaviour rule."""
    return {
        "then": {"enum": list(ACTIONS), "description": "what happens to a call that the rule is about"},
        "reason": {
            "anyOf": [TEXT_SCHEMA, {"type": "null"}],
            "description": "why; shown to whoever asks about the call",
        },
        "mode": {"enum": list(MODES), "default": "enforce", "description": "`shadow` records and never acts"},
        "shadow": {"type": "boolean", "default": False, "description": "the same as `mode: shadow`"},
        "approvals": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "how many people have to approve a call that the rule pauses",
        },
        "approvers": {**TEXTS_SCHEMA, "minItems": 1, "description": "the people who can approve it"},
    }


def _guard() -> dict[str, Any]:
    tool = {"type": "object", "anyOf": [{"required": ["id"]}, {"required": ["name"]}]}
    properties = {
        "agent": {**TEXT_SCHEMA, "description": "the agent it is for; any where it is left out"},
        "mode": {
            "enum": list(EXECUTION_MODES),
            "default": "request",
            "description": "whether somebody can be asked: in the mode `request` no rule may pause",
        },
        "tools": {
            "type": "array",
            "items": {"anyOf": [TEXT_SCHEMA, tool]},
            "description": "the tools that may be called, by name and not by pattern; every tool where it is left out",
        },
        "rules": {"type": "array", "items": {"$ref": "#/$defs/rule", "required": ["then"]}},
    }
    return closed_object(properties, required=["rules"])


def _guard_rule() -> dict[str, Any]:
    properties = {
        "id": {**TEXT_SCHEMA, "description": "the rule's own name"},
        "when": {**_one_or_several(_GROUP), "description": "which attempted calls it is about"},
        **_enforcement_properties(),
        "inline": {
            "type": "boolean",
            "default": False,
            "description": "whether window counters decide calls too, and not only alert",
        },
        "severity": {"$ref": "#/$defs/severity"},
        "description": {**TEXT_SCHEMA, "description": "why the rule exists; shown in reports"},
        "tags": {**TEXTS_SCHEMA, "description": "words to group rules by"},
    }
    return {**closed_object(properties, required=["id", "when", "then"]), "allOf": [_NOT_BOTH]}


def _predicates() -> dict[str, Any]:
    counters = {key: _one_or_several(_counter(key)) for key in OVER}
    return _comparison_or(_ARGUMENT, {**_call_properties(), **counters, **_groups(_GROUP)})


def _call_properties() -> dict[str, Any]:
    return {
        "tool_name_in": {**TEXTS_SCHEMA, "description": "the tool is one of these"},
        "tool_name_regex": {**TEXT_SCHEMA, "description": "the tool's name has a match of this pattern"},
        **{key: _one_or_several(_argument(key)) for key in OPERATORS},
    }


def _groups(one: dict[str, Any]) -> dict[str, Any]:
    several = {"type": "array", "items": one}
    return {
        "all_of": {**several, "description": "all of these hold"},
        "any_of": {**several, "description": "at least one of these holds"},
        "not": {"anyOf": [one, {**several, "minItems": 1}], "description": "this does not hold"},
    }


def _one_or_several(one: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [one, {"type": "array", "items": one}]}


def _argument(key: str) -> dict[str, Any]:
    path = {"path": _ARGUMENT}
    if key in PRESENCE:
        return {"anyOf": [TEXT_SCHEMA, closed_object(path, required=["path"])]}
    if key in PATTERNS:
        return closed_object({**path, "pattern": TEXT_SCHEMA}, required=["path", "pattern"])
    if key in MEMBERSHIP:
        both = closed_object({**path, "values": {"type": "array"}, "value": {"type": "array"}}, required=["path"])
        return {**both, "oneOf": [{"required": ["values"]}, {"required": ["value"]}]}
    value = {"type": "number"} if key in BOUNDS else TEXT_SCHEMA if key in TEXTS else {}
    return closed_object({**path, "value": value}, required=["path", "value"])


def _counter(key: str) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "tool": {**TEXT_SCHEMA, "description": "count only this tool"},
        "value": {"type": "integer", "minimum": 0, "description": "more attempts than this"},
    }
    if OVER[key] != "window":
        return closed_object(properties, required=["value"])
    seconds = {"type": "number", "exclusiveMinimum": 0, "description": "how far the window reaches back"}
    over = {"enum": list(REACHES), "default": "session", "description": "whose attempts it counts"}
    window = closed_object({**properties, **dict.fromkeys(SECONDS, seconds), "over": over}, required=["value"])
    return {**window, "oneOf": [{"required": [name]} for name in SECONDS]}


def _manifest() -> dict[str, Any]:
    listed = {"type": ["array", "null"]}
    documents: dict[str, Any] = {key: {} for key in (*DOCUMENT_KEYS, *MODE_KEYS, "version")}
    documents |= {"versions": {**listed, "items": _version()}, "agents": listed, "services": listed, "includes": listed}
    document = {
        "type": "object",
        "description": "an agent manifest",
        "properties": documents,
        "additionalProperties": False,
        "patternProperties": {"^x-": {}},
        "anyOf": [{"required": [key]} for key in ("versions", "agents", "kind")],
    }
    version = {**_version(), "anyOf": [{"required": ["anomalyControl"]}, {"required": ["agentManifestKey"]}]}
    return {"anyOf": [document, version, {"type": "array", "items": document}]}


def _version() -> dict[str, Any]:
    """One version of an agent."""
    names = ("agentManifestKey", "status", *LABEL_KEYS, *MODE_KEYS, *TOOL_KEYS, *VERSION_KEYS)
    rules = {"type": ["array", "null"], "items": {"$ref": "#/$defs/rule", "required": ["then"]}}
    flag = {"type": ["boolean", "null"]}
    own = {"anomalyControl": flag, "rules": rules, "status": {"enum": list(STATUSES)}}
    own |= {"canExecuteSubAgents": flag, "allowedSubAgents": {"type": ["array", "null"], "items": {"type": "string"}}}
    properties = {**{key: {} for key in names}, **own}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "patternProperties": {"^x-": {}},
    }


SHIPPED = Path(__file__).parent / "schema" / "rules.schema.json"


def rule_file_schema() -> dict[str, Any]:
    rules = {"type": "array", "items": {"$ref": "#/$defs/rule"}, "description": "the rules that the agent must keep"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Bylaw rule file",
        "anyOf": [rules, _file(rules), {"$ref": "#/$defs/guardRule"}, {"$ref": "#/$defs/manifest"}],
        "$defs": {
            "rule": {
                "if": {"required": ["then"], "not": {"required": ["kind"]}},
                "then": {"$ref": "#/$defs/guardRule"},
                "else": {"$ref": "#/$defs/behaviourRule"},
            },
            "behaviourRule": _behaviour_rule(),
            "severity": {"enum": list(SEVERITIES), "default": "error"},
            "guard": _guard(),
            "guardRule": _guard_rule(),
            "predicates": _predicates(),
            "manifest": _manifest(),
            **contract_defs(),
            "condition": _condition(),
            **{name: schema for kind in KINDS.values() for name, schema in kind.definitions.items()},
            **{f"{name}.params": {**params_schema(kind.params), **kind.together} for name, kind in KINDS.items()},
        },
    }


def render() -> str:
    return json.dumps(rule_file_schema(), indent=2, ensure_ascii=False) + "\n"


def _file(rules: dict[str, Any]) -> dict[str, Any]:
    others: dict[str, Any] = {key: {"description": "not read by `bylaw check`"} for key in (*OTHERS, *NOT_RUN)}
    plain: dict[str, Any] = {key: {} for key in PLAIN_KEYS}
    plain["defaults"] = {
        **closed_object({"scope": _scope(), "severity": {"$ref": "#/$defs/severity"}}, required=[]),
        "description": "what rules mean that do not say it themselves",
    }
    plain["tools"] = {
        **TEXTS_SCHEMA,
        "description": "the tools that exist, by name and not by pattern; rules that name others are warned about",
    }
    plain["strict"] = {
        "type": "boolean",
        "default": False,
        "description": "whether `bylaw check` exits with 3 if a rule was not checked or anything was warned about",
    }
    several = "what decides the calls of an agent, or of several"
    guard = {**_one_or_several({"$ref": "#/$defs/guard"}), "description": several}
    sections = {"rules": rules, "guard": guard, **contract_sections(), "expected": EXPECTED_SCHEMA}
    return closed_object({**others, **sections, **plain}, required=[])


def _behaviour_rule() -> dict[str, Any]:
    properties = {
        "id": {**TEXT_SCHEMA, "description": "the rule's own name, unique in all rule files"},
        "kind": {"enum": list(KINDS), "description": "what the rule demands"},
        "params": {"type": "object", "description": "the parameters of the kind"},
        "when": {**conditions_schema(), "description": "conditions on a turn, all of which must hold"},
        "severity": {"$ref": "#/$defs/severity"},
        "scope": _scope(),
        "description": {**TEXT_SCHEMA, "description": "why the rule exists; shown in reports"},
        "tags": {**TEXTS_SCHEMA, "description": "words to group rules by"},
        **_enforcement_properties(),
    }
    together = [
        {"properties": {"then": {"enum": [action for action in ACTIONS if action != "allow"]}}},
        {"dependentRequired": {key: ["then"] for key in ("reason", "mode", "shadow", "approvals", "approvers")}},
        _NOT_BOTH,
        *(_kind_schema(kind) for kind in KINDS.values()),
    ]
    return {**closed_object(properties, required=["id", "kind", "params"]), "allOf": together}


def _scope() -> dict[str, Any]:
    judged = "whether the rule is judged over the whole trace or in each session"
    return {"enum": list(SCOPES), "default": "trace", "description": judged}


def _kind_schema(kind: Kind) -> dict[str, Any]:
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
    path = {
        "type": "string",
        "pattern": path_pattern(),
        "description": "a dotted path into the turn, such as `request.params.amount`",
    }
    return _comparison_or(path, {**_call_properties(), **_groups({"$ref": "#/$defs/condition"})})


def _comparison_or(path: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "if": {"required": ["path"]},
        "then": comparison_schema(path),
        "else": closed_object(properties, required=[]),
    }


if __name__ == "__main__":
    SHIPPED.write_text(render(), "utf-8")
