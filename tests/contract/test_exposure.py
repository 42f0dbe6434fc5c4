"""What counts: the runs that a fault hit. The others are shown apart, and reports show the choice `vacuous: ok`."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from msgspec.structs import replace

from bylaw.contract import model as checks
from bylaw.contract.commands import RENDERERS
from bylaw.contract.faults import AnyFault, Injection
from bylaw.contract.file.loader import parse_contract
from bylaw.contract.file.sections import PROFILES
from bylaw.contract.job import run_on_agent
from bylaw.contract.live_agent import AgentRun, Failure
from bylaw.contract.model import Scenario
from bylaw.contract.report import headline, statistics
from bylaw.contract.results import CellOutcome
from tests.contract.scripted import SLOW_MODEL, TOOL_DOWN, TOOLS, Script, ScriptedAgent, contract, invariant, ran
from tests.support.build import trace

TEN = tuple(f"prompt {number}" for number in range(10))


class CallsTheToolOnceInTen(ScriptedAgent):
    """Only the first prompt makes it call the tool that is down."""

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        run = await super().run(prompt, injection)
        hits = {fault.id: int(prompt == TEN[0]) for fault in injection.faults}
        return replace(run, fired=hits)


def test_only_exposed_runs_count_and_the_report_says_which_they_are() -> None:
    report = run_on_agent(contract(scenarios=[TOOLS], prompts=TEN), CallsTheToolOnceInTen("fine", has_reset=True))
    (cell,) = report.cells
    assert (cell.outcome, cell.passed, cell.decided, cell.exposed, cell.runs) == (CellOutcome.OK, 1, 1, 1, 10)
    assert cell.interval is not None and cell.interval[0] < 0.3
    met = [[fault["fired"] for fault in one["faults"]] for one in _json(report)["cells"][0]["evidence"]]
    assert met == [[1], *[[]] * 9]
    assert [one.outcome for one in cell.evidence] == [CellOutcome.OK, *[CellOutcome.VACUOUS] * 9]
    shown = RENDERERS["terminal"](report)
    assert "ok 1/1 of 10" in shown and "in the others of the m runs no fault fired" in shown


def test_a_calm_scenario_exposes_every_run() -> None:
    (cell,) = run_on_agent(contract(prompts=TEN), ScriptedAgent("fine", has_reset=True)).cells
    assert (cell.passed, cell.decided, cell.exposed) == (10, 10, 10)


def test_an_invariant_that_always_holds_is_violated_in_an_unexposed_run_too() -> None:
    plan = contract(invariant("i", checks.Contains(("never",))), scenarios=[TOOLS], prompts=TEN)
    (cell,) = run_on_agent(plan, CallsTheToolOnceInTen("fine", has_reset=True)).cells
    assert (cell.outcome, cell.passed, cell.decided, cell.failed_unexposed) == (CellOutcome.VIOLATED, 0, 1, 9)
    assert cell.evidence[1].found.startswith("no fault fired in this run")


@pytest.mark.parametrize(("when", "unexposed"), [("always", 3), ("tool_faults_active", 0)])
def test_runs_that_fail_without_a_fault_are_no_share_of_the_exposed_ones(when: Any, unexposed: int) -> None:
    """Of ten runs one is exposed, and three others crash: 1 of 1 held, whatever those three say about the agent."""
    script: Script = lambda prompt, _: Failure("crash", "oops") if prompt in TEN[4:7] else "fine"  # noqa: E731
    plan = contract(invariant("i", checks.Completes(), when=when), scenarios=[TOOLS], prompts=TEN)
    report = run_on_agent(plan, CallsTheToolOnceInTen(script, has_reset=True))
    (cell,) = report.cells
    assert (cell.passed, cell.decided, cell.exposed, cell.failed_unexposed) == (1, 1, 1, unexposed)
    assert cell.interval is not None and cell.interval[1] == 1.0 and cell.pass_k == (1.0,)
    assert cell.outcome is (CellOutcome.VIOLATED if unexposed else CellOutcome.OK)
    assert (cell.violated_unexposed == 3) is not bool(unexposed)
    shown = RENDERERS["terminal"](report)
    assert ("violated 1/1 of 10, 3 unexposed" in shown) is bool(unexposed)
    if unexposed:
        assert statistics(cell).endswith("; 3 runs failed in which no fault fired; 6 more runs showed nothing")
        assert "`n unexposed`" in shown


def test_a_run_without_an_answer_is_an_error_and_no_share_either() -> None:
    script: Script = lambda prompt, _: Failure("crash", "oops") if prompt in TEN[4:7] else "fine"  # noqa: E731
    plan = contract(invariant("i", when="tool_faults_active"), scenarios=[TOOLS], prompts=TEN)
    (cell,) = run_on_agent(plan, CallsTheToolOnceInTen(script, has_reset=True)).cells
    assert (cell.outcome, cell.passed, cell.decided, cell.failed_unexposed) == (CellOutcome.ERROR, 1, 1, 3)


def test_only_faults_that_the_invariant_is_about_expose_a_run() -> None:
    both = Scenario(name="both", tool_faults=(TOOL_DOWN,), llm_faults=(SLOW_MODEL,))
    plan = contract(invariant("i", when="llm_faults_active"), scenarios=[both], prompts=TEN)
    (cell,) = run_on_agent(plan, ScriptedAgent("fine", has_reset=True, idle=[SLOW_MODEL.id])).cells
    assert (cell.exposed, cell.decided, cell.outcome) == (0, 0, CellOutcome.VACUOUS)


def test_a_violation_where_no_fault_fired_is_said_plainly() -> None:
    said = lambda prompt, _: "$12" if prompt == TEN[3] else "sorry"  # noqa: E731
    plan = contract(
        invariant("no-price", checks.Excludes((r"\$\d",)), when="tool_faults_active"), scenarios=[TOOLS], prompts=TEN
    )
    report = run_on_agent(plan, CallsTheToolOnceInTen(said, has_reset=True))
    (cell,) = report.cells
    assert (cell.outcome, cell.violated_unexposed, cell.decided) == (CellOutcome.OK, 1, 1)
    assert any("`no-price` is violated in `tools down` in 1 of its 10 runs although no" in w for w in report.warnings)


RULED = """
contract:
  name: desk
  invariants:
    - id: confirm-first
      type: rule
      severity: critical
      vacuous: {vacuous}
      rule: {{ kind: must_call_before, params: {{ first: confirm, second: refund }}, scope: session }}
    - {{ id: answers, type: completes }}
chaos_matrix: [{{ name: down, tool_faults: [{{ tool: find_order, mode: error }}] }}]
agent: {{ endpoint: "desk:agent" }}
golden_prompts: [refund me]
"""


@pytest.mark.parametrize(("vacuous", "score", "code"), [("ok", 100, 0), ("not_ok", 25, 3)])
def test_an_agent_that_stops_in_good_order_keeps_a_rule_that_was_never_triggered(
    vacuous: str, score: float, code: int
) -> None:
    file = parse_contract(RULED.format(vacuous=vacuous))
    assert file.contract is not None, file.diagnostics
    report = run_on_agent(file.contract, ScriptedAgent("I cannot find the order.", has_reset=True))
    assert (report.score, report.exit_code) == (score, code)
    assert _json(report)["cells"][0]["assumed"] is (vacuous == "ok")
    assert ("ok (vacuous)" in RENDERERS["terminal"](report)) is (vacuous == "ok")


def test_vacuous_ok_needs_faults_that_reach_the_agent_somewhere() -> None:
    refuses = invariant("refuses", checks.NotEmpty(), probes=("do harm",), vacuous_is_ok=True)
    plan = contract(refuses, invariant("answers"), scenarios=[TOOLS], prompts=TEN[:1])
    report = run_on_agent(plan, CallsTheToolOnceInTen("fine", has_reset=True))
    assert report.cell("refuses", TOOLS.name).assumed and report.exit_code == 0
    nowhere = run_on_agent(plan, ScriptedAgent("fine", has_reset=True, idle=[TOOL_DOWN.id]))
    assert nowhere.cell("refuses", TOOLS.name).outcome is CellOutcome.VACUOUS


def test_a_run_that_shows_nothing_at_all_is_no_pass_whatever_the_file_says() -> None:
    rule = parse_contract(RULED.format(vacuous="ok").replace("    - { id: answers, type: completes }\n", "")).contract
    assert rule is not None
    report = run_on_agent(rule, ScriptedAgent("no", has_reset=True))
    assert report.exit_code == 3
    assert headline(report) == "NOT SHOWN: score 100, but every cell is kept only because of `vacuous: ok`"


class TwoCalls(ScriptedAgent):
    """A model call, a tool call and a model call; a fault fires where it is due, a drift of JSON fields never."""

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        from bylaw.contract.faults.plan import Plan

        plan = Plan(injection)
        self._hit(plan, plan.model_call(), says_text=False)
        self._hit(plan, plan.tool_call("find_order"))
        for attack in plan.attacks(on_result_of="find_order"):
            plan.hit(attack)
        self._hit(plan, plan.model_call())
        return ran("done", fired=plan.fired)

    def _hit(self, plan: Any, fault: AnyFault | None, *, says_text: bool = True) -> None:
        is_rename = getattr(fault, "drift_type", None) == "json_field_rename"
        changes_text = getattr(fault, "mode", "") in ("truncated_response", "response_drift")
        if fault is not None and not is_rename and (says_text or not changes_text):
            plan.hit(fault)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_fires_on_an_agent_with_two_calls(profile: str) -> None:
    text = RULED.format(vacuous="ok").replace(
        "chaos_matrix: [{ name: down, tool_faults: [{ tool: find_order, mode: error }] }]",
        f"chaos_matrix: [{profile}]",
    )
    file = parse_contract(text)
    assert file.contract is not None, file.diagnostics
    report = run_on_agent(file.contract, TwoCalls("", has_reset=True))
    assert report.cell("answers", profile).outcome is CellOutcome.OK, report.cells


def _json(report: Any) -> Any:
    return json.loads(RENDERERS["json"](report))


class Unseen(ScriptedAgent):
    """Behind a URL: nobody sees what it calls."""

    knows_tools = False


_UNSEEN = """
contract:
  name: c
  invariants:
    - {{ id: i, vacuous: ok, {} }}
chaos_matrix: [{{ name: calm }}]
agent: {{ endpoint: "http://127.0.0.1:9/ask" }}
golden_prompts: [hello]
"""


@pytest.mark.parametrize(
    ("invariant", "is_about_calls"),
    [
        ("type: rule, rule: { kind: no_call, params: { tool: pay } }", True),
        ("type: rule, rule: { kind: max_calls, params: { tool: '*', limit: 3 } }", True),
        ("type: rule, rule: { kind: must_call_once, params: { tool: pay } }", True),
        ("type: rule, rule: { kind: must_call_before, params: { first: ask, then: pay } }", True),
        ("type: rule, rule: { kind: max_turns, params: { limit: 3 } }", True),
        ("type: rule, rule: { kind: temporal, params: { never: { tool: pay } } }", True),
        ("type: rule, rule: { kind: no_call, params: { tool: pay } }, negate: true", True),
        ("no_duplicate_side_effects: [pay]", True),
        ("recovers_within: { calls: 2 }", True),
        ("type: rule, rule: { kind: forbidden_text, params: { text: idiot } }", False),
        ("type: completes", False),
    ],
)
def test_rules_about_calls_that_nobody_sees_show_nothing(invariant: str, is_about_calls: bool) -> None:
    """Neither that they held nor that they were violated, and `vacuous: ok` does not change that."""
    file = parse_contract(_UNSEEN.format(invariant))
    assert file.contract is not None, file.diagnostics
    assert ("calls-unseen" in {one.code for one in file.diagnostics}) == is_about_calls
    (cell,) = run_on_agent(file.contract, Unseen("fine", has_reset=True)).cells
    assert (cell.outcome is CellOutcome.VACUOUS) == is_about_calls, cell
    (seen,) = run_on_agent(file.contract, ScriptedAgent("fine", has_reset=True)).cells
    assert seen.outcome is not CellOutcome.VACUOUS


def test_a_rule_about_a_tool_that_the_agent_does_not_have_is_warned_about() -> None:
    agent = ScriptedAgent("fine", has_reset=True)
    agent.tools = frozenset({"find_order", "pay"})  # type: ignore[attr-defined]
    warnings: dict[str, list[str]] = {}
    kinds = (
        "type: rule, rule: {{ kind: no_call, params: {{ tool: {} }} }}",
        "type: rule, rule: {{ kind: temporal, params: {{ never: {{ tool: {} }} }} }}",
        "no_duplicate_side_effects: [{}]",
    )
    for name, kind in itertools.product(("delete_account", "find_ordr", "pay"), kinds):
        file = parse_contract(_UNSEEN.format(kind.format(name)))
        assert file.contract is not None
        report = run_on_agent(file.contract, agent)
        found = [one for one in report.warnings if "calls-unseen" not in one]
        assert warnings.setdefault(name, found) == found, kind
    assert warnings == {
        "delete_account": [
            "`i` names the tool `delete_account`, of which nothing was seen; the agent has `find_order`, `pay`"
        ],
        "find_ordr": ["`i` names the tool `find_ordr`, of which nothing was seen; did you mean `find_order`?"],
        "pay": [],
    }


class CallsOther(ScriptedAgent):
    """Calls `pay`, and never the tool that is down."""

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        run = await super().run(prompt, injection)
        return replace(run, fired={}, trace=trace([{"text": "fine", "calls": ["pay"]}]))


def test_a_fault_on_a_tool_that_is_never_called_names_the_tools_that_are() -> None:
    report = run_on_agent(contract(scenarios=[TOOLS]), CallsOther("fine", has_reset=True))
    assert report.warnings == (
        "`search: error 503` of the scenario `tools down` never fired: no call of the tool `search` was seen; "
        "the agent has `pay`",
    )
