"""Conditions listed under a tool: which rules they become, and which calls break them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.comply.inputs import read_tools
from bylaw.comply.prompt import read_prompt
from tests.support.yaml_files import load_yaml

FILES = sorted(Path(__file__).with_name("sections").glob("*.yaml"))


def _cases() -> Iterator[Any]:
    for file in FILES:
        content = load_yaml(file.read_text())
        for case in content["cases"]:
            yield pytest.param(content, case, id=f"{file.stem}: {case['name']}")


@pytest.mark.parametrize(("content", "case"), list(_cases()))
def test_broken_conditions_are_found(content: dict[str, Any], case: dict[str, Any]) -> None:
    events = [event for name, arguments, result in case["events"] for event in call_and_result(name, arguments, result)]
    result = bylaw.check_compliance_sync(content["prompt"], events, tools=content["tools"])
    described = {rule.rule_id: rule.description for rule in result.extracted_rules}
    broken = {described[violation.rule_id] for violation in result.violations}
    wanted = {text for text in broken if any(words in text for words in case["broken"])}
    assert broken == wanted
    assert len(broken) == len(case["broken"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_conditions_under_a_tool_become_rules(file: Path) -> None:
    content = load_yaml(file.read_text())
    rules = read_prompt(content["prompt"], tools=read_tools(content["tools"])).rules
    of_tools = [rule for rule in rules if rule.trigger.startswith("call_tool: ")]
    wanted_rules = [(rule["trigger"], rule["tier"]) for rule in content["rules"]]
    assert [(rule.trigger, rule.tier and rule.tier.value) for rule in of_tools] == wanted_rules
    for rule, wanted in zip(of_tools, content["rules"], strict=True):
        assert wanted["says"] in rule.description
        if "shown_by" in wanted:
            formulas = " ".join(str(one.item["params"]) for one in rule.items)
            shown_by = {name for found in re.findall(r"result\(([\w |]+)", formulas) for name in found.split(" | ")}
            assert shown_by == set(wanted["shown_by"]), rule.description
        stated = content["prompt"][rule.start : rule.end]
        assert stated.split()[0] == rule.description.split()[0]


def call_and_result(name: str, arguments: dict[str, Any], result: str) -> Iterator[dict[str, Any]]:
    yield {"type": "tool_call", "name": name, "args": arguments}
    yield {"type": "tool_result", "name": name, "content": result}
