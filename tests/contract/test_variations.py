"""Variations of prompts: the agent shows what it was really asked, and the report which variation breaks what."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bylaw.contract.commands import RENDERERS
from bylaw.contract.file.loader import parse_contract
from bylaw.contract.job import run_on_agent
from bylaw.contract.model import Contract, Conversation, messages_of
from bylaw.contract.results import CellOutcome
from bylaw.contract.runs import lay_out
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


VALUES = (
    "$42.50", "https://shop.example/orders/Ab7?x=Y", "A-17", "ops@shop.example", "2026-05-01", "4111 1111 1111 1111",
    "report_v2.txt", "/var/log/App", "`refund(order)`", "QWERTZ", "+44 20 7946 0958", "10:30", "1,234.56", "#998",
    "www.shop.example", "GB82 WEST 1234 5698 7654 32", "v1.2.3", "e.g.", "C:\\Temp",
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"base64"}))
def test_no_variation_changes_amounts_ids_and_addresses(name: str) -> None:
    """An agent that is asked for another order has done nothing wrong if it does not find it."""
    for number, value in enumerate(VALUES):
        prompt = f"Please look closely at {value} for me. It concerns the customer, see {value}! Then cancel {value}."
        for seed in range(6):
            made = vary(prompt, name, number, seed)
            assert made.count(value) == 3, (name, value, made)


@pytest.mark.parametrize(
    ("prompt", "sentences"),
    [
        ("It cost $42.50. Refund it.", ["It cost $42.50.", "Refund it."]),
        ("See https://a.b/c.d?e=f. Then pay!", ["See https://a.b/c.d?e=f.", "Then pay!"]),
        ("Ask Mr. Smith of No. 17, e.g. today. Why?", ["Ask Mr. Smith of No. 17, e.g. today.", "Why?"]),
        ('Was it J. Doe? He said "no." Ok', ["Was it J. Doe?", 'He said "no."', "Ok"]),
        ("1. Find it.\n2. Pay 3.5 Euro", ["1. Find it.", "2. Pay 3.5 Euro"]),
        ("Run `a. b! c`. refund it. done", ["Run `a. b! c`.", "refund it.", "done"]),
        ("返金して。今すぐ\uff01", ["返金して。", "今すぐ\uff01"]),
        ("Wait... what?! Pay.", ["Wait...", "what?!", "Pay."]),
    ],
)
def test_sentences_are_reordered_whole(prompt: str, sentences: list[str]) -> None:
    for seed in range(5):
        made = vary(prompt, "reordered", 0, seed)
        assert made != prompt and all(sentence in made for sentence in sentences)
        assert len(made) == len(" ".join(sentences))


@pytest.mark.parametrize("prompt", ["It cost $42.50", "Ask Mr. Smith.", "Open https://a.b/c. 7 times"])
def test_one_sentence_is_not_reordered(prompt: str) -> None:
    assert vary(prompt, "reordered", 0, 0) == prompt


@pytest.mark.parametrize("prompt", ["What does the book cost?", "Refund order A-17", "Is my flight on the list next?"])
def test_words_that_may_be_verbs_or_nouns_have_no_synonym(prompt: str) -> None:
    assert vary(prompt, "synonyms", 0, 0) == prompt


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
    report = run_on_agent(contract, agent)
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
    report = run_on_agent(contract, agent)
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
