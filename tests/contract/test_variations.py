"""Variations of prompts: the agent shows what it was really asked, and the report which variation breaks what."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bylaw.contract.conversation import Conversation, messages_of
from bylaw.contract.file.loader import parse_contract
from bylaw.contract.job import run_contract
from bylaw.contract.matrix import lay_out
from bylaw.contract.model import Contract
from bylaw.contract.report import RENDERERS
from bylaw.contract.results import CellOutcome
from bylaw.contract.variations import KINDS, vary
from tests.contract.scripted import ScriptedAgent

PROMPT = "I want to buy a book. What does the book cost? Please check it."


@pytest.mark.parametrize("name", KINDS)
def test_a_variation_differs_from_its_prompt_and_is_the_same_with_the_same_seed(name: str) -> None:
    made = vary(PROMPT, name, 0, 7)
    assert made != PROMPT and made.strip()
    assert made == vary(PROMPT, name, 0, 7)
    assert made.encode()  # no half of a surrogate pair


@pytest.mark.parametrize("name", ["typos", "casing", "whitespace", "filler", "injection", "zero_width"])
def test_the_number_and_the_seed_make_other_variations(name: str) -> None:
    assert len({vary(PROMPT, name, number, seed) for number in range(4) for seed in range(4)}) > 2


@pytest.mark.parametrize(
    "name", sorted(set(KINDS) - {"typos", "casing", "synonyms", "homoglyphs", "zero_width", "base64"})
)
def test_the_words_of_the_prompt_are_still_there(name: str) -> None:
    assert sorted(set(PROMPT.split()) - set(vary(PROMPT, name, 0, 1).split())) == []


def test_what_variations_do() -> None:
    coded = vary(PROMPT, "base64", 0, 0).rpartition(" ")[2]
    assert base64.b64decode(coded).decode() == PROMPT
    assert "purchase" in vary(PROMPT, "synonyms", 0, 0)
    assert vary(PROMPT, "casing", 0, 0).casefold() == PROMPT.casefold()
    hidden = vary(PROMPT, "zero_width", 0, 0)
    assert "".join(c for c in hidden if c not in "\u200b\u200c\u2060") == PROMPT
    assert len(vary(PROMPT, "long", 0, 0).split()) > 3_000
    assert any(ord(c) > 0x400 for c in vary(PROMPT, "homoglyphs", 0, 0))


_WITHOUT_WORDS = {"typos", "casing", "reordered", "synonyms", "homoglyphs", "zero_width"}
"""what changes nothing in a text without words"""


@pytest.mark.parametrize(
    ("text", "unchanged"),
    [
        ("", _WITHOUT_WORDS),
        (" ", _WITHOUT_WORDS),
        ("?", _WITHOUT_WORDS),
        ("\ud800", _WITHOUT_WORDS),
        ("日本語", _WITHOUT_WORDS - {"zero_width"}),
        ("ok", {"typos", "reordered", "synonyms"}),
        ("a" * 5_000, {"reordered", "synonyms"}),
    ],
)
def test_any_prompt_can_be_varied(text: str, unchanged: set[str]) -> None:
    assert {name for name in KINDS if vary(text, name, 0, 0) == text} == unchanged


def test_a_conversation_stays_one() -> None:
    made = vary(Conversation(["Find my order.", "Cancel it."]), "polite", 0, 0)
    assert len(messages_of(made)) == 2 and "Cancel it." in messages_of(made)[1]


def contract_of(prompts: str, more: str = "") -> Contract:
    text = f"""
contract:
  name: shop
  {more}
  invariants:
    - {{ id: cites, type: contains, value: source }}
    - {{ id: answers, type: completes }}
chaos_matrix: [{{ name: calm }}, {{ name: down, tool_faults: [{{ tool: a, mode: error }}] }}]
agent: {{ endpoint: "m:f" }}
golden_prompts: {prompts}
"""
    file = parse_contract(text)
    assert file.contract is not None, file.diagnostics
    return file.contract


def test_the_report_says_which_variation_breaks_what() -> None:
    contract = contract_of(f"[{{ prompt: {json.dumps(PROMPT)}, variations: [casing, base64, long] }}]")
    agent = ScriptedAgent(lambda prompt, _: "no idea" if "Base64" in prompt else "42, source: list", has_reset=True)
    report = run_contract(contract, agent)
    asked = [prompt for _, prompt in agent.asked]
    assert len(asked) == 5, "the prompt in two scenarios, and three variations in the calm one"
    assert any("Base64" in prompt for prompt in asked) and any(len(prompt) > 10_000 for prompt in asked)
    cell = report.cell("cites", "calm")
    assert cell.outcome is CellOutcome.VIOLATED
    assert [one.variation for one in cell.evidence if one.outcome is CellOutcome.VIOLATED] == ["base64"]
    assert report.cell("answers", "calm").outcome is report.cell("cites", "down").outcome is CellOutcome.OK
    for shown in (RENDERERS["terminal"](report), RENDERERS["markdown"](report).replace("\\`", "`")):
        assert "casing: 1 of 1 kept" in shown and "base64: 0 of 1 kept; breaks `cites`" in shown
    found: dict[str, Any] = json.loads(RENDERERS["json"](report))
    assert {"variation": "base64", "runs": 1, "kept": 0, "breaks": {"cites": 1}} in found["variations"]


def test_a_variation_may_name_the_invariants_that_must_hold() -> None:
    contract = contract_of("[{ prompt: What now?, variations: { typos: { count: 3, invariants: [answers] }, rude: } }]")
    matrix = lay_out(contract)
    kinds = {id: [matrix.varied[key.prompt].variation for key in keys if key.prompt in matrix.varied]
             for (id, scenario), keys in matrix.cells.items() if scenario == "calm"}  # fmt: skip
    assert kinds["cites"] == ["rude"]
    assert kinds["answers"].count("typos") in (2, 3) and "rude" in kinds["answers"]


def test_the_contract_may_vary_all_prompts_and_a_prompt_of_its_own_differs() -> None:
    contract = contract_of("[one two three, { prompt: four five six, variations: rude }]", "variations: [polite, long]")
    assert [[one.name for one in prompt.variations] for prompt in contract.prompts] == [["polite", "long"], ["rude"]]
    assert len(contract_of("[{ prompt: a, variations: all }]").prompts[0].variations) == len(KINDS)


def test_a_variation_that_changes_nothing_is_not_asked_and_the_report_says_so() -> None:
    contract = contract_of("[{ prompt: Hello, variations: [reordered] }]")
    agent = ScriptedAgent("source", has_reset=True)
    report = run_contract(contract, agent)
    assert len(agent.asked) == 2
    assert "the variation `reordered` changes nothing in `Hello`, so it was not asked" in report.warnings


@pytest.mark.parametrize(
    ("variations", "code"),
    [("[typo]", "unknown-type"), ("{ typos: { invariants: [cite] } }", "unknown-invariant"), ("[]", "empty-value"),
     ("{ typos: { count: 0 } }", "wrong-type"), ("3", "unquoted-number")],
)  # fmt: skip
def test_mistakes_are_located(variations: str, code: str) -> None:
    file = parse_contract(
        "contract: { name: c, invariants: [{ id: cites, type: completes }] }\nchaos_matrix: [{ name: calm }]\n"
        f"agent: {{ endpoint: 'm:f' }}\ngolden_prompts:\n  - prompt: hi\n    variations: {variations}\n"
    )
    assert [one.code for one in file.diagnostics] == [code]
    assert file.diagnostics[0].span is not None and file.diagnostics[0].span.line in (5, 6)
