"""No certain rule is broken by dialogues that no prompt forbids, and every certain reading was reviewed by a person."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bylaw.comply.decide import CompiledPrompt
from bylaw.comply.inputs import as_trace, merge_tools, read_tools, tools_called
from bylaw.comply.model import PromptRules, Tier
from bylaw.comply.prompt import read_prompt
from bylaw.model.events import Trace
from tests.comply.golden import in_short
from tests.support.yaml_files import load_yaml

OURS = load_yaml(Path(__file__).with_name("innocent.yaml").read_text())
REVIEWED = Path(__file__).with_name("reviewed.json")
"""of the open prompts: line and reading of each certain rule, with the hash of its sentence instead of the sentence"""


def certain_breaches(prompt: PromptRules, traces: Iterable[Trace]) -> list[str]:
    if not any(rule.items and rule.tier is Tier.CERTAIN for rule in prompt.rules):
        return []
    compiled = CompiledPrompt(prompt)
    found = (violation for trace in traces for violation in compiled.check(trace).violations)
    return [violation.explanation for violation in found if violation.tier is Tier.CERTAIN]


@pytest.mark.parametrize("name", OURS["prompts"])
def test_our_dialogues_break_no_certain_rule_of_our_prompts(name: str) -> None:
    traces = [as_trace(messages) for messages in OURS["dialogues"].values()]
    tools = merge_tools(tools_called(trace.events) for trace in traces)
    prompt = read_prompt(OURS["prompts"][name], tools=tools)
    assert prompt.rules
    assert certain_breaches(prompt, traces) == []


def test_our_prompts_state_the_certain_rules_that_a_reader_finds_in_them() -> None:
    found = {
        name: [short for rule in read_prompt(text).rules if rule.tier is Tier.CERTAIN for short in in_short(rule)]
        for name, text in OURS["prompts"].items()
    }
    assert {name: len(shorts) for name, shorts in found.items()} == OURS["certain"], found


# -- the open prompts --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def innocent(data: Path) -> list[Trace]:
    lines = (data / "dialogues" / "innocent.jsonl").read_text().splitlines()
    return [as_trace(json.loads(line)["messages"]) for line in lines]


@pytest.fixture(scope="module")
def open_prompts(data: Path, innocent: list[Trace]) -> dict[str, tuple[str, PromptRules]]:
    """Each prompt with its text, read with its tools, or else with those of the dialogues."""
    called = merge_tools(tools_called(trace.events) for trace in innocent)
    found = {}
    for entry in json.loads((data / "prompts" / "index.json").read_text()):
        text = (data / "prompts" / entry["file"]).read_text()
        tools = read_tools(entry.get("tools") or entry.get("tool_names") or [])
        found[entry["file"]] = (text, read_prompt(text, tools=tools or called))
    return found


@pytest.mark.corpus
def test_innocent_dialogues_break_no_certain_rule_of_the_open_prompts(
    open_prompts: dict[str, tuple[str, PromptRules]], innocent: list[Trace]
) -> None:
    assert open_prompts and innocent
    for file, (_, prompt) in open_prompts.items():
        assert certain_breaches(prompt, innocent) == [], file


def certain_readings(text: str, prompt: PromptRules) -> list[dict[str, Any]]:
    return [
        {
            "line": text.count("\n", 0, rule.start) + 1,
            "sentence": hashlib.sha256(rule.description.encode()).hexdigest()[:16],
            "reading": in_short(rule),
        }
        for rule in prompt.rules
        if rule.tier is Tier.CERTAIN
    ]


@pytest.mark.corpus
def test_every_certain_reading_of_the_open_prompts_was_reviewed(
    open_prompts: dict[str, tuple[str, PromptRules]], pytestconfig: pytest.Config
) -> None:
    found = {
        file: readings for file, (text, prompt) in open_prompts.items() if (readings := certain_readings(text, prompt))
    }
    if pytestconfig.getoption("--update-golden"):
        REVIEWED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(REVIEWED.read_text())
