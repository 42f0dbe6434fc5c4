"""Profiles for Hypothesis: the same examples for everyone in `make test`, more of them in `make proof`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("test", max_examples=150, deadline=None, derandomize=True, suppress_health_check=_CALM)
settings.register_profile("proof", max_examples=5_000, deadline=None, suppress_health_check=_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real traces; tests that need it are marked `corpus`."""
    if not DATA.is_dir():
        pytest.skip("the folder of real traces is not beside this checkout")
    return DATA


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files in tests/golden")
