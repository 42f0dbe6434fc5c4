"""Golden sentences: how a case is loaded, and how the rules read from it are written in short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bylaw.comply.model import EngineItem, PromptRule, ToolSpec
from bylaw.comply.prompt.dialogue import user_agrees
from tests.support.yaml_files import load_yaml

HERE = Path(__file__).parent


def toolset() -> list[ToolSpec]:
    known = load_yaml((HERE / "toolset.yaml").read_text())
    return [
        ToolSpec(name=name, description=given.get("description", ""), params=given["params"], has_schema=True)
        for name, given in known.items()
    ]


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Every case with the file it stands in."""
    files = sorted((HERE / "sentences").glob("*.yaml"))
    return [(file.stem, case) for file in files for case in load_yaml(file.read_text())]


def in_short(rule: PromptRule) -> list[str]:
    """`no_call drop_table`, `a before b`, a formula; `undecided` where nothing decides the rule."""
    return [_item_in_short(item) for item in rule.items] or ["undecided"]


def _item_in_short(item: EngineItem) -> str:
    kind, params = item.item["kind"], item.item["params"]
    if kind == "no_call":
        return f"no_call {_names(params['tool'])}"
    if kind == "must_call_before":
        return f"{_names(params['first'])} before {_names(params['second'])}"
    if kind == "must_call_once":
        return f"once {_names(params['tool'])}"
    if kind == "forbidden_text":
        return f"forbidden_text {params['text']}"
    if kind == "must_match_json_schema":
        return "in JSON"
    return _formula_in_short(params)


def _formula_in_short(params: dict[str, Any]) -> str:
    formula: str = params["formula"]
    end = f" -> {user_agrees()})"
    if formula.endswith(end):
        call = formula.removesuffix(end).removeprefix("G (tool(").removesuffix(")")
        return f"agreed {call.replace(' | ', ', ')}"
    return f"turns: {formula}" if params.get("over") == "turns" else formula


def _names(given: str | list[str]) -> str:
    return given if isinstance(given, str) else ", ".join(given)


def as_file(rules: list[PromptRule]) -> str:
    """The engine rules as a rule file, ids made unique as extraction does."""
    items = [item.item for rule in rules for item in rule.items]
    return json.dumps({"rules": [{**item, "id": f"{item['id']}-{index}"} for index, item in enumerate(items)]})
