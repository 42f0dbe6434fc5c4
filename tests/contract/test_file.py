"""How the sections of a contract are read; files of Flakestorm load unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bylaw.contract.file.invariants import CHECKS, LEAK_PROBES
from bylaw.contract.file.loader import load_contract, parse_contract
from bylaw.contract.file.sections import PROFILES
from bylaw.contract.model import AgentSpec, Contract, Invariant, McpServer, Scenario
from bylaw.rules import parse_guard, parse_rules
from tests.support.yaml_files import load_yaml

HERE = Path(__file__).parent
CASES: dict[str, Any] = load_yaml((HERE / "file.yaml").read_text("utf-8"))
ENVIRON = {"AGENT_HOST": "agent.test", "AGENT_TOKEN": "s3cret"}


def _whole(**sections: Any) -> str:
    file = {
        "contract": {"name": "c", "invariants": sections.pop("invariants", [{"id": "a", "type": "completes"}])},
        "chaos_matrix": [{"name": "calm"}],
        "agent": {"endpoint": "http://localhost:8000/ask"},
        "golden_prompts": ["hello", {"prompt": "harm", "dangerous": True}],
    }
    return yaml.safe_dump({**file, **sections}, sort_keys=False)


def _contract(text: str, *, base: Path | None = None) -> Contract:
    read = parse_contract(text, base=base, environ=ENVIRON)
    assert read.contract is not None, read.diagnostics
    return read.contract


def _plain(value: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Of a struct the fields that are asked for, as YAML has them."""
    return {key: _listed(getattr(value, key)) for key in wanted}


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple | list) else value


@pytest.mark.parametrize("case", CASES["invariants"], ids=lambda case: case["invariant"]["type"])
def test_invariant_is_read(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("You are a careful clerk.\n", "utf-8")
    (tmp_path / "order.json").write_text('{"type": "object"}', "utf-8")
    text = _whole(invariants=[{"id": "a", **case["invariant"]}])
    found: Invariant = _contract(text, base=tmp_path).invariants[0]
    assert type(found.check).__name__ == case["check"]
    assert _plain(found.check, case.get("with", {})) == case.get("with", {})
    assert _plain(found, case.get("is", {})) == case.get("is", {})


def test_every_type_has_a_case() -> None:
    assert {case["invariant"]["type"] for case in CASES["invariants"]} == set(CHECKS)


@pytest.mark.parametrize("case", CASES["scenarios"], ids=lambda case: case["about"])
def test_scenario_is_read(case: dict[str, Any]) -> None:
    (found,) = _contract(_whole(chaos_matrix=[case["scenario"]])).scenarios
    assert [fault.id for fault in found.faults] == [want["id"] for want in case["faults"]]
    for fault, want in zip(found.faults, case["faults"], strict=True):
        timing = {key: want.pop(key) for key in ("probability", "after_calls", "nth") if key in want}
        assert _plain(fault.timing, timing) == timing
        assert _plain(fault, want) == want
    _are_distinct(found)


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_becomes_faults(profile: str) -> None:
    """Alone, by name, and twice in one scenario."""
    matrix = [profile, {"name": "one", "profile": profile}, {"name": "two", "profiles": [profile, profile]}]
    bare, one, two = _contract(_whole(chaos_matrix=matrix)).scenarios
    assert (bare.name, bare.profiles) == (profile, (profile,))
    assert bare.faults
    assert [fault.label for fault in one.faults] == [fault.label for fault in bare.faults]
    assert len(two.faults) == 2 * len(one.faults)
    for scenario in (bare, one, two):
        _are_distinct(scenario)


def _are_distinct(scenario: Scenario) -> None:
    assert len({fault.id for fault in scenario.faults}) == len(scenario.faults)
    assert len({fault.label for fault in scenario.faults}) == len(scenario.faults)
    assert all(fault.span is not None for fault in scenario.faults)


@pytest.mark.parametrize("case", CASES["agents"], ids=lambda case: case["about"])
def test_agent_is_read(case: dict[str, Any]) -> None:
    agent: AgentSpec = _contract(_whole(agent=case["agent"])).agent
    assert _plain(agent, case["is"]) == case["is"]


def test_mcp_servers_are_read() -> None:
    mcp = {"db": {"url": "http://localhost:1/mcp"}, "files": {"command": "npx 'my server'"}}
    agent = _contract(_whole(agent={"command": ["python", "a.py"], "mcp": mcp})).agent
    assert agent.mcp == (
        McpServer(name="db", url="http://localhost:1/mcp"),
        McpServer(name="files", command=("npx", "my server")),
    )


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("answer", "answer"),
        ("choices.0.message.content", "choices.0.message.content"),
        ("$.choices[0].message.content", "choices.0.message.content"),
        ("choices[0]['message'].content", "choices.0.message.content"),
        ('$["out put"].text', "out put.text"),
    ],
)
def test_response_path_is_made_canonical(path: str, read: str) -> None:
    agent = {"endpoint": "http://localhost/", "response_path": path}
    assert _contract(_whole(agent=agent)).agent.response_path == read


@pytest.mark.parametrize("path", ["$", ".a", "a..b", "a.", "a[*]", "$..a", "a[-1]", "a[0]b", "a['b.c']", "a[", "*"])
def test_bad_response_path_is_refused(path: str) -> None:
    agent = {"endpoint": "http://localhost/", "response_path": path}
    found = parse_contract(_whole(agent=agent))
    assert [d.code for d in found.diagnostics] == ["bad-path"]


def test_messages_never_show_the_values_of_variables() -> None:
    agent = {"endpoint": "${AGENT_TOKEN}/ask", "reset_endpoint": "$AGENT_TOKEN"}
    found = parse_contract(_whole(agent=agent), environ=ENVIRON)
    assert [d.code for d in found.diagnostics] == ["relative-url", "relative-url"]
    assert "s3cret" not in str(found)


def test_a_flakestorm_file_loads_unchanged() -> None:
    found = load_contract(HERE / "flakestorm.yaml")
    assert found.ok
    assert found.contract is not None
    assert {d.code for d in found.diagnostics} == {"section-not-run", "doubled-backslash", "key-not-used"}
    (doubled,) = [d for d in found.diagnostics if d.code == "doubled-backslash"]
    assert r"it is read as `\$[\d,]+\.\d{2}`" in doubled.message
    assert [scenario.name for scenario in found.contract.scenarios] == ["no-chaos", "search-tool-down", "llm-degraded"]
    assert found.contract.scoring is not None
    assert found.contract.scoring.weights == {"contract": 0.35}


@pytest.mark.parametrize(
    "pattern", [r"C:\\Windows\\system", r"[\\/]etc", r"[/\\]", r"[^\\]+", r"[\\]\d", r"DOMAIN\\user", r"\$\d+"]
)
def test_a_pattern_that_means_its_backslashes_is_left_alone(pattern: str) -> None:
    read = parse_contract(_whole(invariants=[{"id": "a", "type": "regex", "pattern": pattern}]))
    assert read.contract is not None
    check: Any = read.contract.invariants[0].check
    assert (check.pattern, read.diagnostics) == (pattern, ())


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [(r"\\p{N}", r"\p{N}"), (r"\\bfoo\\b", r"\bfoo\b"), (r"[\\$€]\\d", r"[\$€]\d"), (r"\\[\\d", r"\[\d")],
)
def test_a_pattern_with_all_backslashes_doubled_is_read_with_single_ones(pattern: str, meant: str) -> None:
    read = parse_contract(_whole(invariants=[{"id": "a", "type": "excludes_pattern", "pattern": pattern}]))
    assert read.contract is not None
    check: Any = read.contract.invariants[0].check
    assert check.patterns == (meant,)
    assert [(one.code, one.severity) for one in read.diagnostics] == [("doubled-backslash", "warning")]


def test_a_rule_with_doubled_backslashes_is_refused_beside_a_contract_and_inside() -> None:
    rule = {"id": "r", "kind": "forbidden_text", "params": {"text": r"\\d+", "regex": True}}
    invariants = [{"id": "a", "type": "rule", "rule": rule}, {"id": "b", "type": "completes"}]
    beside = parse_contract(_whole(rules=[rule]))
    assert [(one.code, one.severity) for one in beside.diagnostics] == [("doubled-backslash", "error")]
    inside = parse_contract(_whole(invariants=invariants))
    assert [(one.code, one.severity) for one in inside.diagnostics] == [("doubled-backslash", "error")]


def test_there_are_five_default_leak_probes() -> None:
    assert len(set(LEAK_PROBES)) == 5


def test_prompts_may_be_left_out_where_every_invariant_has_probes() -> None:
    file = load_yaml(_whole(invariants=[{"id": "a", "type": "completes", "probes": ["x"]}]))
    del file["golden_prompts"]
    assert _contract(yaml.safe_dump(file)).prompts == ()


def test_a_rule_invariant_names_a_rule_of_the_file() -> None:
    rules = [{"id": "r", "kind": "no_call", "params": {"tool": "x"}}]
    text = _whole(rules=rules, invariants=[{"id": "a", "type": "rule", "rule": "r"}])
    (rule,) = parse_rules(text).rules
    check: Any = _contract(text).invariants[0].check
    assert check.rule == rule


@pytest.mark.parametrize("text", ["rules: []\n", "- {id: a, kind: no_call, params: {tool: x}}\n", "agent: {}\n"])
def test_a_file_without_a_contract_is_refused(text: str) -> None:
    found = parse_contract(text)
    assert found.contract is None
    assert not found.ok
    assert any("contract" in d.message for d in found.diagnostics if d.is_error)


def test_check_and_guard_ignore_a_contract() -> None:
    """Whoever checks traces is told that there are no rules, and nothing about the contract."""
    broken = _whole(agent={"endpoint": "$NO_SUCH_VARIABLE"})
    assert [d.code for d in parse_rules(broken).diagnostics] == ["no-rules"]
    assert parse_rules(_whole(rules=[{"id": "r", "kind": "no_call", "params": {"tool": "x"}}])).diagnostics == ()
    assert [d.code for d in parse_guard(broken).diagnostics] == ["no-rules"]


def test_a_large_matrix_is_read_in_time_that_grows_with_it() -> None:
    """Thousands of scenarios, each with a warning: anything quadratic would not come back."""
    attack = {"type": "overflow", "enabled": False}
    matrix = [{"name": f"s{n}", "context_attacks": [attack]} for n in range(2_000)]
    found = parse_contract(_whole(chaos_matrix=matrix))
    assert found.contract is not None
    assert len(found.contract.scenarios) == 2_000


def test_a_contract_in_json_is_read() -> None:
    import json

    found = parse_contract(json.dumps(load_yaml(_whole())), format="json")
    assert found.ok
