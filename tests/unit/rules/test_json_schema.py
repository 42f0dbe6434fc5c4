"""The schema for editors: up to date, and of one mind with the reader."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from bylaw.lint.json_schema import SHIPPED, render, rule_file_schema
from bylaw.rules import parse_rules
from bylaw.rules.kinds import KINDS, Kind
from tests.support.yaml_files import load_yaml

ALL = list(KINDS.values())
MISTAKES = Path(__file__).parents[2] / "mistakes"


@cache
def validator() -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(rule_file_schema())


def test_the_shipped_schema_is_up_to_date() -> None:
    assert SHIPPED.read_text("utf-8") == render(), "run `python -m bylaw.lint.json_schema`"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_examples_are_valid(kind: Kind) -> None:
    rules = load_yaml(kind.example)
    for document in (rules, {"rules": rules, "version": 1, "x-mine": {}}):
        assert validator().is_valid(document), list(validator().iter_errors(document))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_typing_errors_are_not_valid(kind: Kind) -> None:
    for typo in _typos(load_yaml(kind.example)[0]):
        assert not validator().is_valid([typo]), typo


def _typos(rule: dict[str, Any]) -> list[dict[str, Any]]:
    name, value = next(iter(rule["params"].items()))
    rest = {key: value for key, value in rule["params"].items() if key != name}
    return [
        {**rule, "kind": rule["kind"] + "s"},
        {**rule, "sevrity": "error"},
        {**rule, "severity": "high"},
        {**rule, "scope": "all"},
        {**rule, "params": rest},
        {**rule, "params": {**rest, name + "x": value}},
        {**rule, "params": {**rule["params"], "extra": 1}},
        {**rule, "params": {**rest, name: None}},
        {key: value for key, value in rule.items() if key != "id"},
        {**rule, "when": [{"path": "reqest.model", "op": "==", "value": 1}]},
        {**rule, "when": [{"path": "request.model", "op": "=", "value": 1}]},
        {**rule, "when": [{"path": "request.model", "op": "in", "value": 1}]},
        {**rule, "when": [{"path": "request.model", "op": ">", "value": "1"}]},
        {**rule, "when": [{"path": "request.model", "op": "=="}]},
    ]


def _only_warnings() -> list[Any]:
    cases = {path.stem: load_yaml(path.read_text("utf-8")) for path in sorted(MISTAKES.glob("*.yaml"))}
    good = {k: v for k, v in cases.items() if all(want.get("severity") == "warning" for want in v["want"])}
    return [pytest.param(case["file"], id=name) for name, case in good.items()]


@pytest.mark.parametrize("text", _only_warnings())
def test_the_schema_accepts_what_the_reader_accepts(text: str) -> None:
    assert parse_rules(text).ok
    document = load_yaml(text)
    assert validator().is_valid(document), list(validator().iter_errors(document))
