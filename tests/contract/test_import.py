"""`bylaw contract import`: files of Flakestorm become contracts that load, and nothing is dropped in silence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from bylaw.contract.commands import import_file
from bylaw.contract.file.loader import load_contract, parse_contract
from bylaw.contract.flakestorm import MUTATIONS, import_flakestorm
from bylaw.contract.variations import KINDS
from bylaw.errors import InputError
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
    unused = ["invariants[0].threshold", "invariants[0].dangerous_prompts", "invariants[1].dangerous_prompts"]
    assert sorted(left) == sorted([*expected, *unused, "mutations.types[3]", "mutations.weights"])


WHOLE: dict[str, Any] = {
    **FIRST,
    "golden_prompts": [
        "Reserve a table",
        ["Where is my order?", "Refund it."],
        {"prompt": "Delete it all", "dangerous": True, "id": 7, "tags": ["x"]},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "And now?"}]},
        {"input": "How much?", "expected_output": "42", "severity": "high"},
        {"note": "no prompt"},
        8,
        " ",
    ],
    "chaos": {"profile": "api_outage", "description": "d", "tool_faults": [{"tool": "a", "mode": "slow"}]},
    "chaos_matrix": [
        "hostile_tools",
        "mayhem",
        {"name": "p", "profile": "degraded_llm"},
        {"name": "q", "profiles": ["api_outage", "mayhem"], "tool_faults": [{"tool": "a", "mode": "slow"}]},
        {"name": "lost", "profile": "mayhem", "llm_faults": [{"mode": "explode"}, "empty"]},
        {"name": "none left", "profile": "mayhem"},
        {
            "name": "attacks",
            "context_attacks": {"overflow": None, "memory_poisoning": {"payload": "x"}, "rumour": {"payload": "y"}},
        },
        5,
    ],
    "contract": {
        "name": "c",
        "owner": "me",
        "invariants": [
            {"id": "a", "type": "excludes_pattern", "patterns": ["password", "(?i)secret"], "team": "t"},
            {"id": "b", "type": "json_schema", "schema": {"type": "object", "properties": {"x": {}}}},
        ],
        "chaos_matrix": [{"name": "calm", "tool_faults": []}],
    },
    "replays": {
        "sessions": [
            {
                "id": "s1",
                "input": "Why is it late?",
                "context": {"user": "u"},
                "severity": "critical",
                "expected_output": "It is on its way",
                "expected_failure": "f",
                "tool_responses": [{"tool": "t", "status": 504}],
                "contract": "c",
            },
            {"id": "s2", "input": "And why?", "severity": "low"},
            {"file": "one.yaml"},
            {"id": "s3", "input": 3},
        ],
        "sources": [{"type": "langsmith"}],
        "limit": 3,
    },
    "scoring": {"mutation": 0.2, "contract": 0.35, "weight_of_luck": 1},
}


def test_profiles_prompts_and_sessions_are_imported_as_far_as_bylaw_has_them(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("id: i\ninput: [One, Two]\ncontext: c\n")
    made = import_flakestorm(WHOLE, tmp_path)
    scenarios = {one["name"]: sorted(one.keys() - {"name"}) for one in made.file["chaos_matrix"]}
    assert scenarios == {
        "calm": [],
        "hostile_tools": ["profiles"],
        "p": ["profiles"],
        "q": ["profiles", "tool_faults"],
        "lost": ["llm_faults"],
        "attacks": ["context_attacks"],
        "chaos": ["description", "profiles", "tool_faults"],
    }
    assert made.file["golden_prompts"] == [
        "Reserve a table",
        ["Where is my order?", "Refund it."],
        {"prompt": "Delete it all", "dangerous": True},
        "And now?",
        "How much?",
        "Why is it late?",
        "And why?",
        ["One", "Two"],
    ]
    expected = [one for one in made.file["contract"]["invariants"] if one.get("probes")]
    assert [(one["id"], one["expected"], one["severity"], one["probes"]) for one in expected] == [
        ("golden_prompts[4]-expected", "42", "high", ["How much?"]),
        ("s1-expected", "It is on its way", "critical", ["Why is it late?"]),
    ]
    assert made.file["contract"]["invariants"][0]["patterns"] == ["(?i)password", "(?i)secret"]
    assert made.file["scoring"] == {"contract": 0.35}
    file = parse_contract(as_yaml_text(made.file))
    assert file.ok, file.diagnostics
    left = {note.split("`")[1] for note in made.notes if "was left out" in note}
    inner = {f"replays.sessions[0].{key}" for key in ("context", "expected_failure", "tool_responses", "contract")}
    inner |= {"one.yaml: context", "replays.sessions[1].severity", "replays.sessions[3].input", "replays.sources"}
    inner |= {"chaos_matrix[1]", "chaos_matrix[3].profiles[1]", "chaos_matrix[4].llm_faults[0]", "chaos_matrix[5]"}
    inner |= {"chaos_matrix[4].profile", "chaos_matrix[6].context_attacks.rumour", "chaos_matrix[7]"}
    inner |= {"golden_prompts[2].id", "golden_prompts[2].tags", "golden_prompts[3].messages[0]", "golden_prompts[5]"}
    inner |= {"golden_prompts[6]", "golden_prompts[7]", "contract.owner", "contract.invariants[0].team"}
    inner |= {"replays.limit", "scoring.mutation", "scoring.weight_of_luck", "replays.sessions[3].id"}
    assert left >= inner, inner - left


def test_each_reason_is_that_of_its_own_key() -> None:
    root = {**WHOLE, "advanced": {"seed": -1, "retries": 2, "concurrency": 4, "x": 1}}
    root["mutations"] = {"types": ["noise"], "custom_templates": {"a": "b"}, "weights": {}, "count": "many"}
    reasons = dict(note.split("` was left out: ") for note in import_flakestorm(root, HERE).notes if "left out" in note)
    words = {
        "advanced.seed": "whole number", "advanced.retries": "repeated", "advanced.concurrency": "at once",
        "advanced.x": "nothing of this name", "mutations.custom_templates": "instruct", "mutations.weights": "weigh",
        "mutations.count": "whole number", "chaos_matrix[5]": "would be calm", "chaos_matrix[1]": "no profile `mayhem`",
        "replays.sessions[1].severity": "a prompt has none", "scoring.mutation": "does not run",
    }  # fmt: skip
    assert {key: word in reasons[f"`{key}"] for key, word in words.items()} == dict.fromkeys(words, True)


def _containers(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, tuple[str | int, ...]]]:
    if isinstance(value, dict | list):
        yield value, path
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _containers(one, (*path, key))


def _shown(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_not_converted_is_named(seed: int) -> None:
    """Unknown keys at every depth, and values of other types in place of those that are expected."""
    random = Random(seed)
    root = copy.deepcopy(WHOLE)
    del root["version"]  # the only key that says nothing and is not named
    marks: dict[str, tuple[str | int, ...]] = {}
    for container, path in list(_containers(root)):
        mark = f"mark-{seed}-{len(marks)}"
        value = random.choice(
            [1, None, mark, [mark], {"inner": mark}, {"a.b": [mark]}] if seed % 2 else [mark, [mark], {"z": mark}]
        )
        if isinstance(container, dict) and (seed % 2 or not container):
            container[mark] = value
            marks[mark] = (*path, mark)
        elif container and random.random() < 0.15:
            key = random.choice(list(container) if isinstance(container, dict) else range(len(container)))
            container[key] = value
            marks = {old: at for old, at in marks.items() if at[: len(path) + 1] != (*path, key)}
            marks[mark] = (*path, key)
    made = import_flakestorm(root, HERE)
    text = as_yaml_text(made.file) + "\n".join(made.notes)
    left = {note.split("`")[1] for note in made.notes if "was left out" in note}
    for mark, path in marks.items():
        places = {_shown(path[: length + 1]) for length in range(len(path))}
        inside = {one for one in left if one.startswith(_shown(path))}
        assert mark in text or places & left or inside or _still_there(root, path, mark) is False, (mark, path)


def _still_there(root: Any, path: tuple[str | int, ...], mark: str) -> bool:
    """Whether a later change has not replaced what holds the mark."""
    for step in path:
        try:
            root = root[step]
        except (KeyError, IndexError, TypeError):
            return False
    return mark in str(root) or path[-1] == mark


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
    assert sum("was left out" in note for note in notes) == 3 and any("called `a-2`" in note for note in notes)


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
    assert profile.file == {"chaos_matrix": [{"name": "down", "description": "d", "tool_faults": [fault]}]}
    assert len(profile.notes) == 1 and "cannot be run before" in profile.notes[0]


@pytest.mark.parametrize(
    ("odd", "left_out"),
    [
        ({}, []),
        ({"contract": 3}, ["contract"]),
        ({"invariants": [1, None], "chaos": [2]}, ["invariants[1]", "invariants[0]", "chaos"]),
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
    assert isinstance(run(import_file, ["nothing.yaml"], standalone_mode=False).exception, InputError)
    Path("part.yaml").write_text("input: hello\n")
    assert run(import_file, ["part.yaml", "-o", "-"], standalone_mode=False).return_value == 2
