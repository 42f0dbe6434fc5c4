"""Golden files: what each renderer makes of one report. `pytest tests/golden --update-golden` rewrites them.

A test goes through the formats that a job declares in its `RENDERERS`, so a new format needs a golden file and no test.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SUFFIXES = {"terminal": "terminal.txt", "markdown": "md"}
"""format → the end of the file's name, where that is not the format itself"""

Golden = Callable[[str, str, str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a rendered report with the golden file of that report and format, or rewrite the file."""

    def compare(report: str, format: str, rendered: str) -> None:
        path = Path(__file__).parent / f"{report}.{SUFFIXES.get(format, format)}"
        if request.config.getoption("--update-golden"):
            path.write_text(rendered, "utf-8")
        assert path.is_file(), f"{path.name} is missing: write it with `pytest tests/golden --update-golden`"
        assert rendered == path.read_text("utf-8")

    return compare
