"""Each framework in an environment of its own, with the versions that its file of requirements names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guard.integrations.conftest import OWN, REQUIREMENTS
from tests.support.environments import run_tests

HERE = Path(__file__).parent


@pytest.mark.proof
@pytest.mark.parametrize("name", sorted(file.stem for file in REQUIREMENTS.glob("*.txt")))
def test_a_framework_in_its_environment(name: str) -> None:
    file = HERE / f"test_{name.replace('-', '_')}.py"
    printed = run_tests(REQUIREMENTS / f"{name}.txt", str(file.relative_to(Path.cwd())))
    assert "passed" in printed or "[100%]" in printed
    assert "SKIPPED" not in printed, printed[-3000:]


def test_every_framework_has_its_requirements() -> None:
    assert {name.replace("_", "-") for name in OWN} <= {file.stem for file in REQUIREMENTS.glob("*.txt")}
    assert all((HERE / f"test_{name}.py").is_file() for name in OWN)
