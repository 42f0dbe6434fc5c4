"""`examples/contracts`: each passes with the good agent, and fails with those that it is meant to catch."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.end_to_end.support import free_port, order_service
from tests.support.command import run_bylaw

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def contracts(tmp_path: Path) -> Iterator[Path]:
    """A copy whose ports are free ones, and whose `python3` is the one that runs the tests."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "examples" / "contracts"
    with order_service() as orders:
        own = str(free_port())
        for file in folder.glob("*.yaml"):
            text = file.read_text().replace("http://127.0.0.1:8199", orders).replace("8198", own)
            file.write_text(text.replace("python3", sys.executable))
        yield folder


def _run(folder: Path, name: str, agent: str) -> tuple[int, dict[str, Any]]:
    file = folder / f"{name}.yaml"
    other = folder / f"{name}-{agent}.yaml"
    other.write_text(file.read_text().replace("good:agent", f"{agent}:agent").replace(".py, good", f".py, {agent}"))
    done = run_bylaw(["contract", "run", "-c", str(other), "--format", "json"], env={**os.environ, "NO_COLOR": "1"})
    assert done.stderr == ""
    report = json.loads(done.stdout)
    return done.returncode, {(c["invariant"], c["scenario"]): c["outcome"] for c in report["cells"]}


@pytest.mark.parametrize("name", ["python", "http", "command"])
def test_the_good_agent_passes(contracts: Path, name: str) -> None:
    code, cells = _run(contracts, name, "good")
    assert (code, set(cells.values())) == (0, {"ok", "not_applicable"}), cells


@pytest.mark.parametrize(
    ("name", "agent", "broken"),
    [
        ("python", "fabricating", ("never-invents", "service down")),
        ("python", "leaky", ("keeps-its-instructions", "calm")),
        ("python", "leaky", ("unmoved", "hostile answer")),
        ("python", "crashing", ("answers", "nonsense")),
        ("http", "fabricating", ("never-invents", "orders down")),
        ("http", "leaky", ("keeps-its-instructions", "calm")),
        ("http", "crashing", ("answers", "orders broken")),
        ("command", "fabricating", ("never-invents", "down at first")),
        ("command", "crashing", ("answers", "orders down")),
    ],
)
def test_the_fault_of_each_bad_agent_is_found(contracts: Path, name: str, agent: str, broken: tuple[str, str]) -> None:
    code, cells = _run(contracts, name, agent)
    assert (code, cells[broken]) == (1, "violated")


def test_every_example_contract_is_valid() -> None:
    files = sorted((EXAMPLES / "contracts").glob("*.yaml"))
    assert len(files) >= 4
    for file in files:
        done = run_bylaw(["contract", "validate", "-c", str(file)])
        unloaded = "agentdojo" in file.name and "cannot be loaded" in done.stderr  # its library need not be installed
        assert done.returncode == 0 and (unloaded or done.stderr == "")
