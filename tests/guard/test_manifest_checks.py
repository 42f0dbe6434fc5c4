"""`bylaw check`, `lint` and `backtest` with a manifest judge what a guard with the same file enforces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import bylaw
from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.events import Event, Origin, Response, ToolCall
from bylaw.model.rule import Rule
from bylaw.model.verdict import Outcome
from tests.support.command import run_bylaw
from tests.twin.behaviour import reference_check


def rule(id: str, tool: str, then: str = "block") -> dict[str, Any]:
    return {"id": id, "when": {"tool_name_in": [tool]}, "then": then}


def document(**more: Any) -> dict[str, Any]:
    """Two agents that use one id, a version that is not deployed, and one that is switched off."""
    versions = [
        {"agentManifestKey": "support", "versionLabel": "v1", "status": "deployed", "rules": [rule("no", "pay")]},
        {"agentManifestKey": "support", "versionLabel": "v2", "status": "testing", "rules": [rule("no", "find")]},
        {"agentManifestKey": "mailer", "versionLabel": "v1", "status": "deployed", "rules": [rule("no", "send")]},
        {
            "agentManifestKey": "clerk",
            "versionLabel": "v1",
            "status": "deployed",
            "anomalyControl": False,
            "rules": [rule("off", "find")],
        },
    ]
    agents = [{"manifestKey": key, "executionMode": "hitl"} for key in ("support", "mailer", "clerk")]
    return {"kind": "phrony.manifest", "version": 1, "agents": agents, "versions": versions, **more}


def record(path: Path, *turns: tuple[str, str]) -> Path:
    """A trace with one call in each turn: who calls what."""
    lines: list[dict[str, Any]] = [{"bylaw": "trace/1"}]
    for number, (agent, tool) in enumerate(turns):
        of = {"session": "s", "agent": agent}
        lines.append({"kind": "response", "content": "", "stop_reason": "tool_use", **of})
        lines.append({"kind": "tool_call", "name": tool, "call_id": f"c{number}", "arguments": {}, **of})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def call(turn: int, agent: str | None, tool: str, parent: str | None = None) -> list[Event]:
    origin = Origin("s", agent=agent, parent_agent=parent)
    made = ToolCall(origin=origin, turn=turn, name=tool, call_id=f"c{turn}", arguments={})
    return [Response(origin=origin, turn=turn, content=[], text="", stop_reason="tool_use", tool_calls=[made]), made]


def outcomes(rules: Any, events: list[Event]) -> dict[str, Outcome]:
    """As the engine sees it, and the reference."""
    evaluation = Evaluation(compile_rules(rules))
    for event in events:
        evaluation.step(event)
    evaluation.end()
    found = dict(evaluation.outcomes())
    assert {id: outcome for id, (outcome, _) in reference_check(rules, events).items()} == found
    return found


OK, VIOLATED, VACUOUS, UNKNOWN = Outcome.OK, Outcome.VIOLATED, Outcome.VACUOUS, Outcome.INCONCLUSIVE
WHOSE = [
    ("own call", [("support", "pay", None)], VIOLATED),
    ("another agent's", [("mailer", "pay", None)], VACUOUS),
    ("another agent's beside its own turn", [("support", "find", None), ("mailer", "pay", None)], OK),
    ("a sub-agent's", [("mailer", "pay", "support")], VIOLATED),
    ("a sub-agent's sub-agent's", [("mailer", "find", "support"), ("clerk", "pay", "mailer")], VIOLATED),
    ("a sub-agent's of another", [("clerk", "pay", "mailer")], VACUOUS),
    ("nobody's", [(None, "pay", None)], UNKNOWN),
    ("nobody's other call", [(None, "find", None)], UNKNOWN),
    ("nobody's other call beside its own", [("support", "find", None), (None, "find", None)], OK),
    ("its own and nobody's", [("support", "pay", None), (None, "pay", None)], VIOLATED),
]


@pytest.mark.parametrize(("calls", "outcome"), [one[1:] for one in WHOSE], ids=[one[0] for one in WHOSE])
def test_rules_of_an_agent_judge_its_own_events(calls: list[tuple[Any, ...]], outcome: Outcome) -> None:
    rules = bylaw.load_rules(document()).rules
    assert {one.id: one.agents for one in rules} == {"support/no": ("support",), "mailer/no": ("mailer",)}
    events = [event for turn, one in enumerate(calls) for event in call(turn, *one)]
    assert outcomes(rules, events)["support/no"] is outcome


def test_of_one_agent_alone_is_what_names_nobody() -> None:
    only = document(agents=document()["agents"][:1], versions=document()["versions"][:2])
    (one,) = bylaw.load_rules(only).rules
    assert (one.id, one.agents) == ("no", ("support", None))
    assert outcomes([one], call(0, None, "pay")) == {"no": VIOLATED}
    assert outcomes([one], call(0, "other", "pay")) == {"no": VACUOUS}


@pytest.mark.parametrize("kind", ["must_call_once", "no_call"])
def test_rules_with_a_kind_are_of_an_agent_too(kind: str) -> None:
    behaviour = {"id": "k", "kind": kind, "params": {"tool": "pay"}, "scope": "session", "then": "block"}
    versions = [{"agentManifestKey": agent, "rules": [behaviour]} for agent in ("support", "mailer")]
    rules = bylaw.load_rules(document(versions=versions)).rules
    found = outcomes(rules, [*call(0, "support", "pay"), *call(1, "mailer", "find")])
    broken = "support" if kind == "no_call" else "mailer"
    assert {one.partition("/")[0] for one, outcome in found.items() if outcome is VIOLATED} <= {broken}
    assert outcomes(rules, call(0, "support", "pay"))["mailer/k"] in (VACUOUS,)


def test_check_uses_the_versions_that_the_guard_uses(tmp_path: Path) -> None:
    path, trace = tmp_path / "m.yaml", record(tmp_path / "t.jsonl", ("support", "find"), ("clerk", "find"))
    path.write_text(yaml.safe_dump(document()))
    base = ["check", trace, "--policy", path, "--allow-vacuous"]
    done = run_bylaw(base)
    assert done.returncode == 0, done.stdout
    assert "the rules of `clerk@v1` are switched off" in done.stderr
    done = run_bylaw([*base, "--version", "support=v2"])
    assert done.returncode == 1
    assert "support/no" in done.stdout
    for wrong, message in (("support=v9", "not `v9`"), ("sales=v1", "no agent `sales`"), ("v2", "not `v2`")):
        done = run_bylaw([*base, "--version", wrong])
        assert (done.returncode, message in done.stderr) == (2, True)
    undecided = document()
    undecided["versions"][0]["status"] = "testing"
    path.write_text(yaml.safe_dump(undecided))
    assert "not clear which one" in run_bylaw(base).stderr
    for command in (["lint", path], ["guard", "decide", "--policy", path]):
        assert run_bylaw(command, stdin='{"tool": "x"}').returncode == 2
    assert run_bylaw(["lint", path, "--version", "support=v1"]).returncode == 0


def test_check_and_lint_take_inputs(tmp_path: Path) -> None:
    versions = [{"agentManifestKey": "support", "rules": [rule("no", "{{inputs.tool}}")]}]
    path, trace = tmp_path / "m.json", record(tmp_path / "t.jsonl", ("support", "pay"))
    path.write_text(json.dumps(document(versions=versions)))
    for command in (["check", trace, "--policy", path], ["lint", path]):
        assert "`tool` has no value" in run_bylaw(command).stderr
        done = run_bylaw([*command, "--input", "tool=pay"])
        assert done.returncode == (1 if command[0] == "check" else 0), done.stderr
    assert next(one.id for one in bylaw.load_rules(path, inputs={"tool": "pay"})) == "no"


def test_two_agents_with_one_id_have_two_incidents(tmp_path: Path) -> None:
    guard = bylaw.Guard(document(), store=tmp_path / "guard.db")
    for agent, tool in (("support", "pay"), ("mailer", "send")):
        decision = guard.decide(bylaw.Attempt(tool=tool, agent=agent, session="s"))
        assert decision.decided_by == f"{agent}/no"
    below = guard.decide(bylaw.Attempt(tool="pay", agent="mailer", ancestors=("support",), session="s"))
    assert below.matched == ("support/no",)
    guard.follower().once()
    assert sorted((one.rule, one.count) for one in guard.incidents.list()) == [("mailer/no", 1), ("support/no", 2)]
    guard.store.close()


def test_a_backtest_counts_the_rules_of_each_agent(tmp_path: Path) -> None:
    trace = record(tmp_path / "t.jsonl", ("support", "pay"), ("mailer", "send"), ("mailer", "send"))
    report = bylaw.backtest(document(), trace)
    assert {id: tally.matched for id, tally in report.rules.items()} == {"support/no": 1, "mailer/no": 2}


def test_ids_of_one_agent_stay_as_they_are() -> None:
    only = document(agents=document()["agents"][:1], versions=document()["versions"][:2])
    assert bylaw.Guard(only).decide(bylaw.Attempt(tool="pay", session="s")).decided_by == "no"
    unlike = document(versions=[document()["versions"][0], {"agentManifestKey": "mailer", "rules": [rule("x", "y")]}])
    assert bylaw.Guard(unlike).decide(bylaw.Attempt(tool="pay", agent="support", session="s")).decided_by == "no"
    assert [one.id for one in bylaw.load_rules(unlike)] == ["no", "x", "allowlist"]  # `clerk` has no version


def with_lists(**more: Any) -> dict[str, Any]:
    """A manifest whose agents may call some tools only, one of them after approval."""
    bank = {"name": "Bank", "operations": [{"name": "pay"}, {"name": "close", "requireApproval": True}]}
    versions = [
        {"agentManifestKey": "support", "versionLabel": "v1", "allowedOperations": ["pay", "close"], **more},
        {"agentManifestKey": "mailer", "versionLabel": "v1", "allowedOperations": ["send"]},
    ]
    agents = [
        {"manifestKey": "support", "executionMode": "hitl"},
        {"manifestKey": "mailer", "executionMode": "request"},
    ]
    return document(services=[bank], versions=versions, agents=agents)


@pytest.mark.parametrize("more", [{}, {"anomalyControl": False, "rules": [rule("no", "pay")]}])
def test_check_judges_allowlists_and_approvals(more: dict[str, Any], tmp_path: Path) -> None:
    rules = bylaw.load_rules(with_lists(**more))
    assert [one.id for one in rules] == ["support/allowlist", "requireApproval:Bank.close", "mailer/allowlist"]

    def judged(*turns: tuple[str, str]) -> list[str]:
        report = bylaw.check(record(tmp_path / "t.jsonl", *turns), rules)
        return [report.worst(one.id).value for one in rules]

    assert judged(("support", "send")) == ["violated", "ok", "vacuous"]
    assert judged(("support", "pay"), ("mailer", "send")) == ["ok", "ok", "ok"]
    assert judged(("support", "close"), ("mailer", "pay")) == ["ok", "inconclusive", "violated"]


def test_a_call_that_nobody_can_approve_is_broken(tmp_path: Path) -> None:
    manifest = with_lists()
    manifest["agents"][0]["executionMode"] = "request"
    report = bylaw.check(record(tmp_path / "t.jsonl", ("support", "close")), bylaw.load_rules(manifest))
    assert report.worst("requireApproval:Bank.close") is Outcome.VIOLATED and report.exit_code == 1


def test_an_allowlist_is_not_that_of_sub_agents() -> None:
    rules = [one for one in bylaw.load_rules(with_lists()) if one.id.endswith("allowlist")]
    events = [*call(0, "support", "pay"), *call(1, "mailer", "send", "support"), *call(2, "mailer", "send")]
    assert set(outcomes(rules, events).values()) == {Outcome.OK}
    assert outcomes(rules, [*events, *call(3, "mailer", "pay", "support")])["mailer/allowlist"] is Outcome.VIOLATED


def test_allowlists_of_several_files_have_ids_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"guard": {"agent": name, "tools": [name], "rules": []}}))
    rules = bylaw.load_rules([tmp_path / "a.json", tmp_path / "b.json"])
    assert [(one.id, one.agents) for one in rules] == [("allowlist", ("a",)), ("allowlist (2)", ("b",))]


def test_a_problem_of_an_included_file_is_shown_in_its_own_lines(tmp_path: Path) -> None:
    (tmp_path / "index.yaml").write_text("kind: phrony.manifest.index\nincludes: [m.yaml]\n")
    versions = [{"agentManifestKey": "support", "rules": [rule("no", "pay", "pause")]}]
    agents = [{"manifestKey": "support", "executionMode": "request"}]
    (tmp_path / "m.yaml").write_text("\n" * 30 + yaml.safe_dump(document(versions=versions, agents=agents)))
    with pytest.raises(bylaw.InputError) as caught:
        bylaw.Guard(tmp_path)
    (problem,) = [one for one in caught.value.diagnostics if one.is_error]
    assert (problem.code, problem.file) == ("pause-in-request-mode", str(tmp_path / "m.yaml"))


def test_a_rule_without_an_agent_is_everybodys() -> None:
    rules: tuple[Rule, ...] = bylaw.load_rules([rule("no", "pay")]).rules
    assert rules[0].agents == ()
    assert outcomes(rules, call(0, "anyone", "pay")) == {"no": VIOLATED}
