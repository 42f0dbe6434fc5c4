"""`examples/stacks`: agents in processes of their own. `tests/live/python/test_frameworks.py` runs the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.stacks import EXAMPLES, EXPECTED, IN_PROCESS, run_stack, stacks

WITH_NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with stacks(tmp_path_factory.mktemp("stacks")) as copy:
        yield copy


@pytest.mark.parametrize(
    "name",
    [
        "openai-command",
        pytest.param("node", marks=WITH_NODE),
        "starlette",
        pytest.param("mcp", marks=pytest.mark.proof),
    ],
)
def test_a_stack_has_the_expected_score(folder: Path, name: str) -> None:
    report = run_stack(folder, name)
    assert (name == "mcp") != any("127.0.0.1" in model for model in report.models)


def test_every_contract_has_an_expected_score() -> None:
    assert {file.stem for file in (EXAMPLES / "stacks").glob("*.yaml")} == EXPECTED.keys()
    assert EXPECTED.keys() == {*IN_PROCESS, "openai-command", "node", "starlette", "mcp"}
