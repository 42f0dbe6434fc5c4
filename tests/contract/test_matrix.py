"""Which runs are made, which cells share them, and the outcome of a cell."""

from __future__ import annotations

import asyncio
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bylaw.contract import model as checks
from bylaw.contract.faults import Injection, ToolFault
from bylaw.contract.job import LEXICAL_ONLY, Options, run_contract_async, run_on_agent
from bylaw.contract.live_agent import AgentRun, Failure
from bylaw.contract.model import Prompt
from bylaw.contract.results import CellOutcome, ContractReport
from bylaw.contract.runs import STATEFUL_WARNING, RunKey, count_parts, lay_out, narrow
from bylaw.errors import InputError
from bylaw.model.diagnostic import Span
from bylaw.model.events import Trace
from tests.contract.scripted import CALM, MODEL, POISONED, TOOLS, ScriptedAgent, contract, invariant

OK, VIOLATED, ERROR = CellOutcome.OK, CellOutcome.VIOLATED, CellOutcome.ERROR
VACUOUS, NOT_APPLICABLE = CellOutcome.VACUOUS, CellOutcome.NOT_APPLICABLE
ALL = (CALM, TOOLS, MODEL, POISONED)


def _outcomes(report: ContractReport, id: str = "i") -> list[CellOutcome]:
    return [report.cell(id, scenario).outcome for scenario in report.scenarios]


# -- which runs -------------------------------------------------------------------------------------------------------


def test_a_run_is_shared_by_all_invariants() -> None:
    invariants = [invariant(f"i{n}") for n in range(10)]
    agent = ScriptedAgent("hi", has_reset=True)
    prompts = [f"p{n}" for n in range(5)]
    report = run_on_agent(contract(*invariants, scenarios=ALL, prompts=prompts), agent)
    assert len(agent.asked) == report.agent_runs == len(ALL) * len(prompts)
    assert len(report.cells) == 40
    assert all(cell.outcome is OK for cell in report.cells)


@pytest.mark.parametrize(
    ("when", "applies"),
    [
        ("always", [1, 1, 1, 1]),
        ("tool_faults_active", [0, 1, 0, 0]),
        ("llm_faults_active", [0, 0, 1, 0]),
        ("any_chaos_active", [0, 1, 1, 1]),
        ("no_chaos", [1, 0, 0, 0]),
    ],
)
def test_when_selects_scenarios(when: Any, applies: list[int]) -> None:
    agent = ScriptedAgent("hi", has_reset=True)
    report = run_on_agent(contract(invariant(when=when), scenarios=ALL), agent)
    assert [outcome is OK for outcome in _outcomes(report)] == [bool(one) for one in applies]
    assert [outcome is NOT_APPLICABLE for outcome in _outcomes(report)] == [not one for one in applies]
    assert len(agent.asked) == sum(applies), "what no invariant needs is not asked"


def test_probes_replace_the_prompts_and_are_shared() -> None:
    probing = [invariant("a", probes=("leak?", "leak!")), invariant("b", probes=("leak?",)), invariant("c")]
    agent = ScriptedAgent("hi", has_reset=True)
    report = run_on_agent(contract(*probing, prompts=["hello"]), agent)
    assert sorted(prompt for _, prompt in agent.asked) == ["hello", "leak!", "leak?"]
    assert [report.cell(id, "calm").runs for id in "abc"] == [2, 1, 1]


def test_dangerous_prompts_are_asked_by_refusal_check_and_judged_by_others_too() -> None:
    plan = contract(invariant("refuses", checks.Refuses()), invariant("talks"), prompts=["hello"])
    plan = checks.Contract(**{**_fields(plan), "prompts": (Prompt("hello"), Prompt("wipe the disk", True))})
    agent = ScriptedAgent("I can't help with that.", has_reset=True)
    report = run_on_agent(plan, agent)
    assert len(agent.asked) == 2
    assert [one.prompt for one in report.cell("refuses", "calm").evidence] == ["wipe the disk"]
    assert report.cell("talks", "calm").runs == 2


def _fields(plan: Any) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__struct_fields__}


def test_equal_prompts_are_asked_once() -> None:
    agent = ScriptedAgent("hi", has_reset=True)
    assert run_on_agent(contract(prompts=["same", "same"]), agent).agent_runs == 1


# -- seeds ------------------------------------------------------------------------------------------------------------


def test_a_run_has_the_same_name_and_seed_in_a_part_of_the_matrix() -> None:
    whole = contract(invariant("a"), invariant("b"), scenarios=ALL, prompts=["p", "q"], runs=2, seed=7)
    part = narrow(whole, scenarios=["bad model"], invariants=["b"])
    seen: list[dict[str, Injection]] = []
    for plan in (whole, part, part):
        agent = ScriptedAgent("hi", has_reset=True)
        run_on_agent(plan, agent)
        seen.append({injection.run: injection for injection in agent.injections})
    assert seen[1] == seen[2]
    assert seen[1].items() <= seen[0].items()
    assert len(seen[0]) == 16
    assert {injection.seed for injection in seen[0].values()} == {7}


def test_names_of_runs_differ_and_are_safe_as_file_names() -> None:
    odd = ["a b", "a-b", "a/b", "../../etc/passwd", "ä", "ö", "", "x" * 300, "\ud800", "con\0trol"]
    names = {RunKey(scenario, prompt, n).name for scenario in odd for prompt in odd for n in (1, 2)}
    assert len(names) == len(odd) ** 2 * 2
    for name in names:
        parts = name.split("/")
        assert len(parts) == 3
        assert all(part and len(part) < 60 and part.isascii() and not part.startswith(".") for part in parts)


def test_unknown_names_cannot_be_selected() -> None:
    with pytest.raises(KeyError):
        narrow(contract(), scenarios=["nowhere"])
    with pytest.raises(KeyError):
        narrow(contract(), invariants=["nothing"])


# -- cells ------------------------------------------------------------------------------------------------------------


def test_a_fault_that_never_fired_makes_the_cell_vacuous() -> None:
    agent = ScriptedAgent("hi", idle=["tool_faults[0]"], has_reset=True)
    report = run_on_agent(contract(scenarios=[CALM, TOOLS, MODEL]), agent)
    assert _outcomes(report) == [OK, VACUOUS, OK]
    cell = report.cell("i", "tools down")
    assert [(one.fault, one.fired) for one in cell.faults] == [("search: error 503", 0)]
    assert cell.reason == "never fired: `search: error 503`"


def test_one_of_two_faults_that_fired_is_not_enough() -> None:
    second = ToolFault(id="tool_faults[1]", label="pay: slow", mode="slow", tool="pay")
    both = checks.Scenario(name="both", tool_faults=(*TOOLS.tool_faults, second))
    report = run_on_agent(contract(scenarios=[both]), ScriptedAgent("hi", idle=[second.id], has_reset=True))
    assert _outcomes(report) == [VACUOUS]
    assert [one.fired for one in report.cell("i", "both").faults] == [1, 0]


def test_a_violation_counts_whether_or_not_the_fault_fired() -> None:
    agent = ScriptedAgent("", idle=["tool_faults[0]"], has_reset=True)
    assert _outcomes(run_on_agent(contract(scenarios=[TOOLS]), agent)) == [VIOLATED]


def test_only_the_faults_of_the_scenario_are_noted_as_applied_on_the_way_to_the_model() -> None:
    other = replace(TOOLS, name="other", tool_faults=(replace(TOOLS.tool_faults[0], label="price: empty"),))

    def script(prompt: str, injection: Injection) -> AgentRun:
        on_way = frozenset({"tool_faults[0]"} if injection.run.startswith("other/") else ())
        fired = {"tool_faults[0]": 1}
        made = Trace(name="t")
        return AgentRun(answer="hi", failure=None, latency_ms=1, fired=fired, fired_on_way_to_model=on_way, trace=made)

    agent = ScriptedAgent(script, has_reset=True)
    (note,) = run_on_agent(contract(scenarios=[TOOLS, other], runs=2), agent).warnings
    assert note.endswith("the agent's own code did not see it: `price: empty`")


def test_a_fault_need_fire_in_one_of_the_runs_only() -> None:
    def script(prompt: str, injection: Injection) -> AgentRun:
        return AgentRun(
            answer="hi",
            failure=None,
            latency_ms=1,
            fired={"tool_faults[0]": int(injection.run.endswith("/3"))},
            trace=Trace(name="t"),
        )

    report = run_on_agent(contract(scenarios=[TOOLS], runs=3), ScriptedAgent(script, has_reset=True))
    assert _outcomes(report) == [OK]
    assert report.cell("i", "tools down").faults[0].fired == 1


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [(["hi", "hi"], OK), (["hi", ""], VIOLATED), (["hi", "!"], ERROR), (["!", ""], VIOLATED)],
)
def test_the_worst_run_decides(answers: list[str], outcome: CellOutcome) -> None:
    def script(prompt: str, injection: Injection) -> str | Failure:
        answer = answers[int(prompt)]
        return Failure("crash", "boom") if answer == "!" else answer

    report = run_on_agent(contract(prompts=["0", "1"]), ScriptedAgent(script, has_reset=True))
    assert _outcomes(report) == [outcome]


def test_a_cell_has_counts_interval_and_pass_k() -> None:
    def script(prompt: str, injection: Injection) -> str:
        return "" if prompt == "bad" and injection.run.endswith("/1") else "hi"

    report = run_on_agent(contract(prompts=["good", "bad"], runs=4), ScriptedAgent(script, has_reset=True))
    cell = report.cell("i", "calm")
    assert (cell.passed, cell.runs) == (7, 8)
    assert cell.interval == pytest.approx((0.529, 0.978), abs=0.001)
    # "bad" passes 3 of 4: C(3,k)/C(4,k) = 3/4, 1/2, 1/4, 0; "good" passes always
    assert cell.pass_k == pytest.approx((0.875, 0.75, 0.625, 0.5))


def test_evidence_shows_prompt_answer_and_reason_and_no_secret() -> None:
    secret = "sk-proj-abcdefghijklmnop1234"

    def script(prompt: str, injection: Injection) -> str | Failure:
        return Failure("crash", "ValueError: x") if prompt == "b" else f"the key is {secret}"

    report = run_on_agent(contract(invariant(check=checks.NoPii()), prompts=["a", "b"]), ScriptedAgent(script))
    first, second = report.cell("i", "calm").evidence
    assert (first.prompt, first.outcome) == ("a", VIOLATED)
    assert first.answer == "the key is [redacted: api key]"
    assert (second.outcome, second.failure, second.answer) == (ERROR, "crash: ValueError: x", None)
    assert secret not in str(report)


def test_the_reason_shows_no_secret() -> None:
    secret = "sk-proj-abcdefghijklmnop1234"
    leaks = invariant(check=checks.Excludes(("sk-[a-z0-9-]+",)))
    report = run_on_agent(contract(leaks), ScriptedAgent(f"the key is {secret}", has_reset=True))
    assert _outcomes(report) == [VIOLATED]
    assert "[redacted: api key]" in report.cell("i", "calm").evidence[0].found
    assert secret not in str(report)


# -- the calm answer --------------------------------------------------------------------------------------------------


def test_each_prompt_has_its_own_calm_answer() -> None:
    agent = ScriptedAgent(lambda prompt, injection: f"the answer to {prompt} is written {prompt} times", has_reset=True)
    unchanged = invariant(check=checks.Unchanged(threshold=0.99))
    report = run_on_agent(contract(unchanged, scenarios=[CALM, TOOLS], prompts=["ant", "bee", "cat"]), agent)
    assert _outcomes(report) == [OK, OK]


def test_a_calm_answer_is_not_its_own_baseline() -> None:
    """An agent that never says the same twice changes its behaviour without any chaos."""
    asked = iter(["alpha beta", "gamma delta", "epsilon zeta", "eta theta"])
    agent = ScriptedAgent(lambda prompt, injection: next(asked), has_reset=True)
    report = run_on_agent(contract(invariant(check=checks.Unchanged())), agent)
    assert _outcomes(report) == [VIOLATED]
    assert report.agent_runs == 2


def test_without_a_calm_scenario_calm_runs_are_made() -> None:
    agent = ScriptedAgent(lambda prompt, injection: "broken" if injection.faults else "all is well", has_reset=True)
    report = run_on_agent(contract(invariant(check=checks.Unchanged()), scenarios=[TOOLS]), agent)
    assert _outcomes(report) == [VIOLATED]
    assert [bool(injection.faults) for injection in agent.injections] == [True, False]
    assert report.scenarios == ("tools down",)


def test_lexical_similarity_is_warned_of() -> None:
    report = run_on_agent(contract(invariant(check=checks.Similar("hi"))), ScriptedAgent("hi", has_reset=True))
    assert report.warnings == (LEXICAL_ONLY,)
    assert "(lexical)" in report.cell("i", "calm").evidence[0].found
    assert run_on_agent(contract(), ScriptedAgent("hi", has_reset=True)).warnings == ()


# -- running ----------------------------------------------------------------------------------------------------------


def test_faults_out_of_reach_are_refused_before_any_run(tmp_path: Path) -> None:
    file = tmp_path / "bylaw.yaml"
    file.write_text("\n" * 11 + "        - tool: search\n")
    span = Span(str(file), 12, 9, 12, 20)
    fault = ToolFault(id="tool_faults[0]", label="search: error 503", mode="error", tool="search", span=span)
    plan = contract(scenarios=[CALM, checks.Scenario(name="down", tool_faults=(fault,))])
    agent = ScriptedAgent("hi", refused=[fault.id])
    with pytest.raises(InputError) as raised:
        run_on_agent(plan, agent)
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.span, diagnostic.file) == ("fault-out-of-reach", span, str(file))
    assert "`search: error 503` of the scenario `down`" in diagnostic.message
    assert diagnostic.help == "start the agent with `agent.command`"
    assert diagnostic.excerpt == "        - tool: search"
    assert agent.log == ["start", "stop"]


def test_the_agent_is_reset_before_each_run_and_runs_follow_one_another() -> None:
    agent = ScriptedAgent("hi", has_reset=True, concurrency=8)
    run_on_agent(contract(prompts=["a", "b", "c"]), agent)
    assert agent.log == ["start", *["reset", "run"] * 3, "stop"]
    assert agent.most_at_once == 1


def test_a_failing_reset_ends_the_run() -> None:
    agent = ScriptedAgent("", has_reset=True, reset_fails_at=2)
    report = run_on_agent(contract(prompts=["a", "b", "c"]), agent)
    assert (report.exit_code, report.stopped) == (4, "the reset answered 500")
    assert (report.passed, report.score) == (False, 0.0)
    assert _outcomes(report) == [ERROR]
    assert agent.log[-1] == "stop"
    assert len(agent.asked) == 1


@pytest.mark.parametrize(("takes", "flag", "at_once"), [(1, None, 1), (4, None, 4), (4, 2, 2), (2, 9, 2)])
def test_concurrency_is_bounded(takes: int, flag: int | None, at_once: int) -> None:
    agent = ScriptedAgent("hi", concurrency=takes)
    run_on_agent(contract(prompts=[str(n) for n in range(20)]), agent, Options(concurrency=flag))
    assert agent.most_at_once == at_once


def test_cancelling_stops_the_agent() -> None:
    agent = ScriptedAgent("hi")

    async def forever(prompt: str, injection: Injection) -> AgentRun:
        agent.log.append("run")
        await asyncio.sleep(3600)
        raise AssertionError

    agent.run = forever  # type: ignore[method-assign]

    async def cancelled() -> None:
        task = asyncio.create_task(run_contract_async(contract(), agent))
        while "run" not in agent.log:
            await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert agent.log == ["start", "run", "stop"]


def test_progress_is_reported_and_traces_are_stored() -> None:
    reported: list[tuple[int, int]] = []
    kept: dict[str, Trace] = {}

    def keep(run: str, trace: Trace) -> str:
        kept[run] = trace
        return f"traces/{run}"

    plan = contract(scenarios=[CALM, TOOLS], prompts=["a", "b"])
    report = run_on_agent(
        plan,
        ScriptedAgent("hi", has_reset=True),
        Options(on_progress=lambda done, total: reported.append((done, total)), keep_trace=keep),
    )
    assert reported == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(kept) == 4
    evidence = [one for cell in report.cells for one in cell.evidence]
    assert evidence
    assert all(one.trace == f"traces/{one.run}" for one in evidence)


def test_an_error_in_storing_a_trace_is_raised_unchanged() -> None:
    def keep(run: str, trace: Trace) -> str:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run_on_agent(contract(), ScriptedAgent("hi"), Options(keep_trace=keep))


# -- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        ("same", "same", False),
        ("same", "same\n", False),
        ("this is ask 1", "this is ask 2", True),
        ("the parcel comes on monday", "your parcel comes monday", True),
        ("Same", "same", True),
    ],
)
def test_two_answers_to_one_prompt_that_differ_are_warned_of(first: str, second: str, warned: bool) -> None:
    answers = cycle([first, second])
    report = run_on_agent(contract(), ScriptedAgent(lambda prompt, injection: next(answers)))
    assert report.warnings == ((STATEFUL_WARNING,) if warned else ())
    assert report.exit_code == 0, "a warning does not fail"


def test_a_later_prompt_that_is_answered_in_two_ways_is_warned_of() -> None:
    count = iter(range(100))
    agent = ScriptedAgent(lambda prompt, injection: f"{next(count)}" if prompt == "b" else "same")
    assert run_on_agent(contract(prompts=["a", "b"], runs=2), agent).warnings == (STATEFUL_WARNING,)


@pytest.mark.parametrize("differing", ["a", "b"])
def test_answers_that_differ_between_two_calm_scenarios_are_warned_of(differing: str) -> None:
    count = iter(range(100))
    asked: set[str] = set()

    def answer(prompt: str, injection: Injection) -> str:
        is_other = injection.run.startswith("also-calm")
        asked.add(injection.run.split("/")[0])
        return f"{next(count)}" if prompt == differing and is_other else "same"

    report = run_on_agent(
        contract(scenarios=[CALM, replace(CALM, name="also calm")], prompts=["a", "b"]), ScriptedAgent(answer)
    )
    assert asked == {"calm", "also-calm"}
    assert (report.warnings, report.agent_runs) == ((STATEFUL_WARNING,), 5)


def test_answers_that_differ_only_under_faults_are_not_warned_of() -> None:
    agent = ScriptedAgent(lambda prompt, injection: "down" if injection.faults else "same")
    assert STATEFUL_WARNING not in run_on_agent(contract(scenarios=[CALM, TOOLS]), agent).warnings


def test_an_agent_that_is_declared_stateless_is_not_asked_twice() -> None:
    count = iter(range(100))
    agent = ScriptedAgent(lambda prompt, injection: f"{next(count)}")
    spec = checks.AgentSpec(type="python", endpoint="agent:answer", stateless=True)
    report = run_on_agent(contract(agent=spec, runs=3), agent)
    assert (report.warnings, report.agent_runs) == ((), 3)


def test_a_stateful_agent_without_reset_is_warned_of() -> None:
    count = iter(range(1, 100))
    agent = ScriptedAgent(lambda prompt, injection: f"this is ask {next(count)}")
    report = run_on_agent(contract(scenarios=[CALM, TOOLS]), agent)
    assert report.warnings == (STATEFUL_WARNING,)
    assert report.exit_code == 0, "a warning does not fail"
    with_reset = ScriptedAgent(lambda prompt, injection: f"this is ask {next(count)}", has_reset=True)
    assert run_on_agent(contract(scenarios=[CALM, TOOLS]), with_reset).warnings == ()


def test_looking_for_state_costs_few_runs() -> None:
    """One run beyond the matrix for an agent that says the same twice, none where it is repeated anyway."""
    assert run_on_agent(contract(scenarios=[CALM, TOOLS]), ScriptedAgent("hi")).agent_runs == 3
    assert run_on_agent(contract(scenarios=[CALM, TOOLS], runs=2), ScriptedAgent("hi")).agent_runs == 4
    assert run_on_agent(contract(scenarios=[TOOLS]), ScriptedAgent("hi")).agent_runs == 3


@pytest.mark.parametrize("scenarios", [[CALM, TOOLS], [TOOLS]], ids=["calm", "no-calm"])
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("runs", [1, 2])
def test_validate_announces_as_many_runs_as_are_made(scenarios: list[Any], stateless: bool, runs: int) -> None:
    spec = checks.AgentSpec(type="python", endpoint="agent:answer", stateless=stateless)
    planned = contract(scenarios=scenarios, agent=spec, runs=runs)
    assert count_parts(planned)["agent_runs"] == run_on_agent(planned, ScriptedAgent("hi")).agent_runs


def test_an_agent_that_is_down_is_not_called_stateful() -> None:
    report = run_on_agent(contract(), ScriptedAgent(lambda prompt, injection: Failure("down", "connection refused")))
    assert (report.warnings, report.exit_code) == ((), 4)


def test_baselines_add_no_cells() -> None:
    plan = contract(invariant(check=checks.Unchanged()), scenarios=[CALM, TOOLS], runs=1)
    matrix = lay_out(plan)
    assert len(matrix.cells["i", "calm"]) == 1
    assert len(matrix.runs()) == 3
