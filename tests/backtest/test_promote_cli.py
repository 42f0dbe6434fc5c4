"""`bylaw guard shadow` and `promote` on a store that a guard has written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import bylaw
from tests.support.command import run_bylaw

RULES = """\
guard:
  rules:
    - id: no-pay
      when: { tool_name_in: [pay] }
      then: block
      mode: shadow # trying it out
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "rules.yaml").chmod(0o600)
    guard = bylaw.Guard(tmp_path / "rules.yaml", store=tmp_path / "guard.db")
    for tool in ("look", "pay", "pay"):
        assert guard.decide(bylaw.Attempt(tool=tool, arguments={"n": 1}, session="s")).allowed
    guard.store.close()
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    done = run_bylaw(["guard", *arguments, "--store", "guard.db"], cwd=folder, stdin="", env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_the_report_counts_changed_decisions(folder: Path) -> None:
    code, out, _ = run(folder, "shadow")
    assert code == 0 and "2 of 3 decisions would have been different" in out
    assert "2 decisions changed (allow → block 2)" in out and "pay(n=1)" in out
    code, out, _ = run(folder, "shadow", "--json", "--rule", "no-pay", "--examples", "1")
    report = json.loads(out)
    assert report["changed"] == 2 and report["rules"][0]["changes"] == 2 and len(report["rules"][0]["examples"]) == 1


def test_promoting_shows_the_report_and_changes_one_word(folder: Path) -> None:
    code, out, problem = run(folder, "promote", "no-pay", "--policy", "rules.yaml")
    assert code == 2 and "so --yes is needed" in problem and "2 decisions changed" in out
    assert (folder / "rules.yaml").read_text() == RULES
    code, out, _ = run(folder, "promote", "no-pay", "--policy", "rules.yaml", "--yes")
    assert code == 0 and "`no-pay` is on" in out and "rules.yaml:6: mode: shadow" in out
    assert (folder / "rules.yaml").read_text() == RULES.replace("mode: shadow #", "mode: enforce #")
    assert (folder / "rules.yaml").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.glob(".rules*")] == []
    code, _, problem = run(folder, "promote", "no-pay", "--policy", "rules.yaml", "--yes")
    assert code == 2 and "is not in shadow" in problem


def test_what_cannot_be_promoted(folder: Path) -> None:
    assert run(folder, "promote", "other", "--policy", "rules.yaml", "--yes")[0] == 2
    assert run(folder, "promote", "no-pay", "--policy", "none.yaml", "--yes")[0] == 2
