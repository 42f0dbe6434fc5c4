"""The reports of `bylaw comply`, on the files of `bylaw demo`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bylaw.comply.commands import DIFF_RENDERERS, RENDERERS, RULES_RENDERERS
from tests.golden.conftest import Golden
from tests.support.command import run_bylaw

DEMO = Path(__file__).parent.parent.parent / "src" / "bylaw" / "demo" / "files"
REPORTS = {
    "comply": (RENDERERS, "comply --prompt prompt.md v2.jsonl"),
    "comply_rules": (RULES_RENDERERS, "comply rules --prompt prompt.md"),
    "comply_diff": (DIFF_RENDERERS, "comply diff prompt.md shorter.md"),
}


@pytest.mark.parametrize(
    ("report", "format"), [(report, format) for report, (formats, _) in REPORTS.items() for format in formats]
)
def test_command(report: str, format: str, golden: Golden, tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path, dirs_exist_ok=True)
    prompt = (tmp_path / "prompt.md").read_text("utf-8")
    (tmp_path / "shorter.md").write_text(prompt.replace("- Call confirm_refund_amount before issue_refund.\n", ""))
    environment = {**os.environ, "COLUMNS": "80"}
    arguments = [*REPORTS[report][1].split(), "--format", format, "--no-color"]
    done = run_bylaw(arguments, cwd=tmp_path, env=environment)
    assert done.stderr == ""
    golden(report, format, done.stdout)
