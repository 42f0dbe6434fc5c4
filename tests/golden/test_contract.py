"""The reports of `bylaw contract run` and `bylaw ci`."""

from __future__ import annotations

import click
import pytest

from bylaw.ci.report import RENDERERS as CI_RENDERERS
from bylaw.ci.report import CiReport, combine, contract_part, failed_part
from bylaw.contract import model as checks
from bylaw.contract.commands import RENDERERS as CONTRACT_RENDERERS
from bylaw.contract.faults import Injection, ToolFault
from bylaw.contract.job import Options, run_on_agent
from bylaw.contract.live_agent import Failure
from bylaw.contract.report import headline, render_markdown, render_terminal
from bylaw.contract.results import ContractReport
from bylaw.errors import ExitCode
from tests.contract.scripted import CALM, MODEL, TOOLS, ScriptedAgent, contract, invariant, severity
from tests.golden.conftest import Golden


def _script(prompt: str, injection: Injection) -> str | Failure:
    if injection.run.startswith("tools-down"):
        return "it costs $19.99, says `<b>me</b>` | \x1b[31mred @everyone"
    if injection.run.startswith("bad-model") and injection.run.endswith("/2"):
        return Failure("crash", "ValueError: not JSON")
    return "It costs $42.50, source: price list"


def _report() -> ContractReport:
    invariants = (
        invariant("cite-source", checks.Contains(("source",)), type="contains", severity=severity("critical")),
        invariant(
            "never-invent",
            checks.Matches(r"\$\d"),
            type="regex",
            negate=True,
            severity=severity("high"),
            when="tool_faults_active",
            description="no figures while tools fail",
        ),
        invariant("completes", checks.Completes(), type="completes"),
        invariant("no-secrets", checks.NoPii(), type="excludes_pii", severity=severity("low")),
    )
    poisoned = checks.Scenario(name="poisoned", tool_faults=(ToolFault(id="f", label="pay: slow", mode="slow"),))
    plan = contract(
        *invariants, scenarios=(CALM, TOOLS, MODEL, poisoned), prompts=["what does it cost?"], runs=2, seed=7
    )
    agent = ScriptedAgent(_script, has_reset=True, idle=["f"])
    return run_on_agent(plan, agent, Options(warnings=("a warning of the caller's",)))


def _ci() -> CiReport:
    report = _report()
    parts = [contract_part(report, headline(report)), failed_part("diff", ExitCode.BAD_INPUT, "BAD INPUT: no traces")]
    weights = {"contract": 3.0, "diff": 1.0}
    return combine(parts, weights=weights, min_score=80.0, left_out=["check: no traces"])


@pytest.mark.parametrize("format", CONTRACT_RENDERERS)
def test_contract(format: str, golden: Golden) -> None:
    golden("contract", format, CONTRACT_RENDERERS[format](_report()))


@pytest.mark.parametrize("format", CI_RENDERERS)
def test_ci(format: str, golden: Golden) -> None:
    part = '{"job": "contract"}' if format == "json" else "(its report)\n"
    golden("ci", format, CI_RENDERERS[format](_ci(), {"contract": part}))


def test_a_wide_matrix_is_broken_into_blocks_that_fit() -> None:
    scenarios = [checks.Scenario(name=f"a scenario with a long name {n}") for n in range(12)]
    report = run_on_agent(contract(scenarios=scenarios), ScriptedAgent("hi", has_reset=True))
    lines = click.unstyle(render_terminal(report)).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("✓ ok" in line for line in lines) == 6


def test_every_line_fits_80_columns_of_a_terminal() -> None:
    long = "a text of many words that has to be wrapped " * 5
    plan = contract(
        *(invariant(f"{long}{n}", checks.Contains((long,)), description=long) for n in range(3)),
        scenarios=[CALM, TOOLS],
        prompts=[long],
        runs=2,
    )
    report = run_on_agent(plan, ScriptedAgent(long, has_reset=True), Options(warnings=(long,)))
    parts = [contract_part(report, headline(report)), failed_part("diff", ExitCode.BAD_INPUT, long)]
    summary = combine(parts, weights={}, min_score=80.0, left_out=[long])
    own = CONTRACT_RENDERERS["terminal"](report)
    lines = click.unstyle(CI_RENDERERS["terminal"](summary, {"contract": own})).splitlines()
    assert max(map(len, lines)) <= 80


def test_markdown_fits_into_a_comment() -> None:
    invariants = [invariant(f"i{n}", checks.Contains(("never",))) for n in range(60)]
    plan = contract(*invariants, prompts=["x" * 500, "y" * 500])
    text = render_markdown(run_on_agent(plan, ScriptedAgent("z" * 2_000, has_reset=True)))
    assert len(text) <= 65_537
    assert "more cells do not fit into a comment" in text
