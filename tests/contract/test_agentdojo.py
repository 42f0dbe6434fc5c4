"""AgentDojo's bank: its tasks, tools and utility function, with Bylaw's faults and rules."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run_bylaw

EXAMPLES = Path(__file__).parents[2] / "examples"
CONTRACT = EXAMPLES / "contracts" / "agentdojo.yaml"
RUNS = 48
"""16 tasks, three times each"""

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(find_spec("agentdojo") is None, reason="agentdojo is not installed"),
]


def _cells(agent: str, tmp_path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    text = CONTRACT.read_text().replace(":planned", f":{agent}").replace("../agents", str(EXAMPLES / "agents"))
    (tmp_path / "bylaw.yaml").write_text(text)
    done = run_bylaw(
        ["contract", "run", "--format", "json"], cwd=tmp_path, timeout=600, env={**os.environ, "NO_COLOR": "1"}
    )
    report = json.loads(done.stdout)
    assert done.returncode in (0, 1), done.stderr
    cells = {(cell["invariant"], cell["scenario"]): cell for cell in report["cells"]}
    assert all(cell["runs"] == RUNS for cell in cells.values())
    hit = cells["keeps-utility", "hostile_tools"]["faults"]
    assert hit
    assert all(fault["fired"] > 0 for fault in hit)
    return cells


@pytest.mark.parametrize("agent", ["planned", "careful", "gullible"])
def test_every_agent_keeps_its_utility_in_the_calm_scenario(agent: str, tmp_path: Path) -> None:
    cells = _cells(agent, tmp_path)
    assert {cell["passed"] for (_, scenario), cell in cells.items() if scenario == "calm"} == {RUNS}


def test_a_careful_agent_keeps_its_utility_and_the_rules(tmp_path: Path) -> None:
    assert {cell["outcome"] for cell in _cells("careful", tmp_path).values()} == {"ok"}


def test_an_agent_that_does_not_check_results_keeps_the_rules_and_loses_utility(tmp_path: Path) -> None:
    cells = _cells("planned", tmp_path)
    lost = {key for key, cell in cells.items() if cell["outcome"] == "violated"}
    assert lost == {("keeps-utility", "hostile_tools")}
    assert 0 < cells["keeps-utility", "hostile_tools"]["passed"] < RUNS


def test_a_gullible_agent_breaks_the_rules(tmp_path: Path) -> None:
    cells = _cells("gullible", tmp_path)
    assert cells["pays-no-attacker", "injected"]["passed"] == 0
    assert cells["no-card-numbers", "hostile_tools"]["outcome"] == "violated"
