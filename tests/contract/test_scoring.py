"""Score, verdict and exit code: one criterion, case by case."""

from __future__ import annotations

import pytest

from bylaw.contract import model as checks
from bylaw.contract.job import Options, run_on_agent
from bylaw.contract.live_agent import Failure
from bylaw.contract.report import headline, size
from bylaw.contract.results import Cell, CellOutcome, ContractReport
from tests.contract.scripted import CALM, MODEL, TOOL_DOWN, TOOLS, ScriptedAgent, contract, invariant, severity

FULL = 100.0


def _report(cells: str, min_score: float = FULL) -> ContractReport:
    """Cells as `critical:ok medium:violated …`."""
    made = []
    for number, cell in enumerate(cells.split()):
        weight, outcome = cell.split(":")
        made.append(
            Cell(
                invariant=f"i{number}",
                scenario="s",
                severity=severity(weight),
                outcome=CellOutcome(outcome),
                reason="",
            )
        )
    return ContractReport(
        contract="c",
        agent="a",
        invariants=tuple(invariant(cell.invariant, severity=cell.severity) for cell in made),
        scenarios=("s",),
        cells=tuple(made),
        min_score=min_score,
    )


@pytest.mark.parametrize(
    ("cells", "min_score", "score", "exit_code", "says"),
    [
        ("medium:ok", FULL, 100, 0, "PASSED"),
        ("medium:ok low:not_applicable", FULL, 100, 0, "PASSED"),
        ("medium:not_applicable", FULL, 0, 3, "NOTHING CHECKED"),
        ("medium:not_applicable", 0, 0, 3, "NOTHING CHECKED"),
        ("", 0, 0, 3, "NOTHING CHECKED"),
        ("critical:ok high:ok medium:violated", FULL, 83.33, 1, "FAILED"),
        ("critical:ok high:ok medium:violated", 80, 83.33, 0, "PASSED"),
        ("critical:ok high:ok medium:violated", 83.33, 83.33, 0, "PASSED"),
        ("critical:ok high:ok medium:violated", 83.34, 83.33, 1, "FAILED"),
        ("critical:violated high:ok medium:ok", 0, 50, 1, "FAILED: critical invariant `i0` violated"),
        ("critical:violated medium:error", 0, 0, 1, "FAILED"),
        ("high:violated low:ok", 0, 33.33, 0, "PASSED"),
        ("medium:vacuous medium:ok", FULL, 50, 3, "NOT SHOWN"),
        ("medium:vacuous medium:ok", 50, 50, 0, "PASSED"),
        ("critical:vacuous medium:ok", 25, 25, 0, "PASSED"),
        ("medium:vacuous", FULL, 0, 3, "NOT SHOWN"),
        ("medium:error medium:ok", FULL, 50, 4, "OUT OF REACH"),
        ("medium:error medium:ok", 0, 50, 4, "OUT OF REACH"),
        ("medium:error medium:vacuous", FULL, 0, 4, "OUT OF REACH"),
        ("medium:error medium:violated medium:ok", 0, 33.33, 1, "FAILED"),
        ("medium:violated medium:vacuous", FULL, 0, 1, "FAILED"),
    ],
)
def test_score_exit_code_and_headline_agree(
    cells: str, min_score: float, score: float, exit_code: int, says: str
) -> None:
    report = _report(cells, min_score)
    assert (report.score, report.exit_code) == (score, exit_code)
    assert report.passed is (exit_code == 0)
    assert headline(report).startswith(says)


def test_rounding_never_makes_a_score_of_100() -> None:
    report = _report(" ".join(["critical:ok"] * 20_000 + ["low:violated"]))
    assert report.score == 99.99
    assert report.exit_code == 1


def test_an_agent_that_is_down_exits_with_4_whatever_is_judged() -> None:
    kinds = [
        invariant("completes", checks.Completes(), severity=severity("critical")),
        invariant("latency", checks.Latency(1)),
        invariant("refuses", checks.Refuses(), probes=("x",)),
        invariant("empty", checks.NotEmpty(), negate=True),
        invariant("same", checks.Unchanged()),
    ]
    agent = ScriptedAgent(lambda prompt, injection: Failure("down", "connection refused"))
    for min_score in (0.0, FULL):
        plan = contract(*kinds, scenarios=[CALM, TOOLS])
        report = run_on_agent(plan, agent, Options(min_score=min_score))
        assert (report.exit_code, report.score, report.passed) == (4, 0.0, False)
        assert all(cell.outcome is CellOutcome.ERROR for cell in report.cells)
        assert "connection refused" in report.cells[0].reason


def test_a_crash_is_a_violation_of_completes_and_an_error_elsewhere() -> None:
    plan = contract(invariant("completes", checks.Completes()), invariant("talks"), scenarios=[CALM])
    report = run_on_agent(plan, ScriptedAgent(lambda prompt, injection: Failure("crash", "boom"), has_reset=True))
    assert [cell.outcome.value for cell in report.cells] == ["violated", "error"]
    assert report.exit_code == 1


def test_a_good_and_a_bad_agent_score_apart_under_the_same_fault() -> None:
    plan = contract(
        invariant(
            "no-invention", checks.Excludes((r"\$\d+",)), severity=severity("critical"), when="tool_faults_active"
        ),
        invariant("answers", checks.NotEmpty()),
        scenarios=[CALM, TOOLS, MODEL],
    )
    good = ScriptedAgent(lambda prompt, injection: "no price now" if injection.faults else "$12", has_reset=True)
    bad = ScriptedAgent("$12", has_reset=True)
    assert (run_on_agent(plan, good).score, run_on_agent(plan, good).exit_code) == (100, 0)
    assert (run_on_agent(plan, bad).score, run_on_agent(plan, bad).exit_code) == (50, 1)


def test_an_answer_without_the_fault_shows_nothing_about_the_fault() -> None:
    plan = contract(
        invariant(
            "no-invention", checks.Excludes((r"\$\d+",)), severity=severity("critical"), when="tool_faults_active"
        ),
        invariant("answers", checks.NotEmpty()),
        scenarios=[CALM, TOOLS],
    )
    report = run_on_agent(plan, ScriptedAgent("$12", has_reset=True, idle=[TOOL_DOWN.id]))
    cell = report.cell("no-invention", TOOLS.name)
    assert cell.outcome is CellOutcome.VACUOUS and "never fired" in cell.reason
    assert "no such fault fired" in cell.evidence[0].found
    assert not report.critical and report.exit_code != 1


def test_nothing_that_an_agent_says_can_end_a_report() -> None:
    from bylaw.contract.commands import RENDERERS

    report = run_on_agent(contract(), ScriptedAgent("half \ud83d"))
    assert [one.answer for cell in report.cells for one in cell.evidence] == ["half \ufffd"]
    for render in RENDERERS.values():
        render(report).encode()


@pytest.mark.parametrize(("repetitions", "runs"), [(1, "3 runs (1 of them only for comparison)"), (2, "4 runs")])
def test_runs_that_are_made_only_for_comparison_are_counted(repetitions: int, runs: str) -> None:
    """One prompt in two scenarios; an agent without reset is asked once more, to find out whether it keeps state."""
    plan = contract(invariant("done", checks.Completes()), scenarios=[CALM, TOOLS], runs=repetitions)
    report = run_on_agent(plan, ScriptedAgent("ok"))
    assert f", {runs}, " in size(report)
    assert sum(cell.runs for cell in report.cells) == 2 * repetitions
