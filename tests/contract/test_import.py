"""`bylaw contract import`: files of Flakestorm become contracts that load, and nothing is dropped in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bylaw.contract.file.loader import load_contract, parse_contract
from bylaw.contract.flakestorm import MUTATIONS, import_flakestorm
from bylaw.contract.import_command import import_file
from bylaw.contract.variations import KINDS
from bylaw.rules.guard.manifest_export import as_yaml_text
from tests.support.yaml_files import load_yaml

HERE = Path(__file__).parent
FIRST: dict[str, Any] = {
    "version": "1.0",
    "agent": {"endpoint": "http://localhost:8000/ask", "type": "http", "timeout": 4000, "headers": {}, "retries": 3},
    "model": {"provider": "ollama", "name": "m"},
    "mutations": {
        "count": 8,
        "types": ["noise", "tone_shift", "prompt_injection", "telepathy"],
        "weights": {"noise": 1},
    },
    "golden_prompts": ["Reserve a table", "Which dishes are vegan?"],
    "invariants": [
        {"type": "latency", "max_ms": 900, "threshold": 0.8, "dangerous_prompts": True},
        {"type": "latency", "max_ms": 1900, "dangerous_prompts": True},
        {"type": "refusal_check", "dangerous_prompts": True},
        {"type": "similarity", "expected": "yes", "threshold": 0.5},
        {"type": "regex", "pattern": r"\\d+ dishes"},
        {"type": "contains"},
        {"type": "mood"},
    ],
    "output": {"format": "html"},
    "advanced": {"seed": 9, "retries": 2},
    "surprise": 1,
}


def imported(root: dict[str, Any], folder: Path = HERE) -> tuple[Any, list[str]]:
    made = import_flakestorm(root, folder)
    return parse_contract(as_yaml_text(made.file)), made.notes


def test_a_file_of_the_first_version() -> None:
    file, _ = imported(FIRST)
    assert file.ok and not file.diagnostics, file.diagnostics
    contract = file.contract
    assert [one.id for one in contract.invariants] == ["latency", "latency-2", "refusal-check", "similarity", "regex"]
    assert {one.when for one in contract.invariants} == {"no_chaos"}
    assert contract.invariants[3].check.threshold == 0.5
    assert contract.invariants[4].check.pattern == r"\d+ dishes"
    assert [one.name for one in contract.scenarios] == ["calm"] and contract.seed == 9
    assert (contract.agent.timeout_ms, len(contract.prompts)) == (4000, 2)
    varied = {one.name: one.count for one in contract.prompts[0].variations}
    assert varied == {"typos": 1, "casing": 1, "rude": 2, "injection": 2}


def test_everything_that_is_left_out_is_named() -> None:
    _, notes = imported(FIRST)
    left = [note.split("`")[1] for note in notes if "was left out" in note]
    expected = ["agent.retries", "invariants[5]", "invariants[6]", "model", "output", "advanced.retries", "surprise"]
    assert sorted(left) == sorted([*expected, "mutations.types: telepathy", "mutations.weights"])


def test_a_file_of_the_second_version() -> None:
    root = load_yaml((HERE / "flakestorm.yaml").read_text("utf-8"))
    file, notes = imported(root)
    assert file.ok and not [one for one in file.diagnostics if one.is_error]
    ids = [one.id for one in file.contract.invariants]
    assert ids == ["always-cite-source", "never-fabricate-when-tools-fail", "max-latency", "latency"]
    assert [one.name for one in file.contract.scenarios] == ["no-chaos", "search-tool-down", "llm-degraded", "chaos"]
    assert r"\\" not in file.contract.invariants[1].check.pattern
    assert any("through Bylaw's proxy" in note for note in notes)
    assert "doubled-backslash" not in [one.code for one in file.diagnostics]


def test_faults_in_every_form() -> None:
    root = {
        "agent": {"endpoint": "m:f", "type": "langchain"},
        "golden_prompts": ["hi"],
        "contract": {
            "name": "c",
            "invariants": [{"id": "a", "type": "completes", "value": None}, {"id": "a", "type": "output_not_empty"}],
            "chaos_matrix": [
                {
                    "name": "s",
                    "tool_faults": [{"tool": "*", "mode": "explode"}, {"tool": "a", "mode": "slow", "delay_ms": 5}],
                },
                {"name": "s", "context_attacks": {"memory_poisoning": {"payload": "x", "strategy": "append"}}},
                {
                    "name": "off",
                    "llm_faults": [{"mode": "empty", "probability": 0}, {"mode": "garbage", "severity": "x"}],
                },
            ],
        },
    }
    file, notes = imported(root)
    assert file.ok, file.diagnostics
    assert [one.id for one in file.contract.invariants] == ["a", "a-2"]
    labels = {one.name: [fault.label for fault in one.faults] for one in file.contract.scenarios}
    assert labels == {
        "calm": [],
        "s": ["a: slow 5 ms"],
        "s-2": ["context: memory poisoning"],
        "off": ["model: garbage"],
    }
    assert sum("was left out" in note for note in notes) == 2 and any("called `a-2`" in note for note in notes)


def test_sessions_and_profiles(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("id: i\ninput: Where is it?\ntool_responses: []\ncontract: c\n")
    sessions = [{"file": "one.yaml"}, {"file": "../one.yaml"}, {"file": "none.yaml"}, {"id": "b", "input": "And now?"}]
    root = {**FIRST, "replays": {"sessions": sessions, "sources": [{"type": "langsmith"}]}}
    file, notes = imported(root, tmp_path)
    assert [prompt.text for prompt in file.contract.prompts][2:] == ["Where is it?", "And now?"]
    assert any("outside the folder" in note for note in notes) and any("none.yaml" in note for note in notes)
    session = import_flakestorm({"id": "i", "input": "Where is it?", "contract": "c"}, tmp_path)
    assert session.file == {"golden_prompts": ["Where is it?"]} and "cannot be run before" in session.notes[-1]
    fault = {"tool": "*", "mode": "error", "probability": 0.5}
    profile = import_flakestorm({"name": "down", "description": "d", "chaos": {"tool_faults": [fault]}}, tmp_path)
    assert profile.file == {"chaos_matrix": [{"name": "down", "tool_faults": [fault]}]}


@pytest.mark.parametrize(
    ("odd", "left_out"),
    [
        ({}, []),
        ({"contract": 3}, ["contract"]),
        ({"invariants": [1, None], "chaos": [2]}, ["invariants[0]", "invariants[1]", "chaos"]),
        ({"chaos_matrix": "x", "golden_prompts": {"a": 1}}, ["chaos_matrix", "golden_prompts"]),
    ],
)
def test_parts_of_odd_files_are_named_and_left_out(odd: dict[str, Any], left_out: list[str]) -> None:
    made = import_flakestorm(odd, HERE)
    assert made.file == {} and made.notes[-1].startswith("the file cannot be run before it has `contract`")
    assert [note.split("`")[1] for note in made.notes if "was left out" in note] == left_out


def test_mutations_become_variations_that_exist() -> None:
    assert {name for names in MUTATIONS.values() for name in names} <= set(KINDS)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOKEN_OF_NOBODY", raising=False)
    agent = {**FIRST["agent"], "headers": {"authorization": "Bearer ${TOKEN_OF_NOBODY}"}}
    Path("flakestorm.yaml").write_text(as_yaml_text({**FIRST, "agent": agent}))
    run = CliRunner().invoke
    done = run(import_file, ["flakestorm.yaml"], standalone_mode=False)
    assert (done.return_value, done.exception) == (0, None), done.output
    assert done.output.startswith("bylaw.yaml: 5 invariants, 1 scenario, 2 golden prompts\nnote: ")
    monkeypatch.setenv("TOKEN_OF_NOBODY", "t")
    assert load_contract("bylaw.yaml").ok
    again = run(import_file, ["flakestorm.yaml"], standalone_mode=False)
    assert "exists" in str(again.exception)
    assert run(import_file, ["flakestorm.yaml", "--force"], standalone_mode=False).return_value == 0
    assert run(import_file, ["nothing.yaml"], standalone_mode=False).return_value == 2
    Path("part.yaml").write_text("input: hello\n")
    assert run(import_file, ["part.yaml", "-o", "-"], standalone_mode=False).return_value == 2
