"""Runs every transcript: files, a command, its exit code, and what it prints. See tests/README.md."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run_bylaw
from tests.support.yaml_files import load_yaml

HERE = Path(__file__).parent
DEMO = HERE.parent.parent / "src" / "bylaw" / "demo" / "files"
_KEYS = {"name", "about", "files", "run", "stdin", "exit", "stdout", "stderr", "not_stdout", "json", "wrote"}


def _transcripts() -> list[Any]:
    found = []
    for path in sorted(HERE.glob("*.yaml")):
        for case in load_yaml(path.read_text("utf-8")):
            found.append(pytest.param(case, id=f"{path.stem}/{case['name']}"))
    return found


@pytest.mark.parametrize("case", _transcripts())
def test_transcript(case: dict[str, Any], tmp_path: Path) -> None:
    assert case.keys() <= _KEYS, f"unknown keys: {case.keys() - _KEYS}"
    for name, text in case.get("files", {}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{demo}", str(DEMO)), "utf-8")
    done = _run(case["run"], tmp_path, case.get("stdin"))
    printed = f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
    assert done.returncode == case["exit"], printed
    _compare(case, done, printed)
    for path, parts in case.get("wrote", {}).items():
        text = (tmp_path / path).read_text("utf-8")
        assert all(part in text for part in parts), text


def _run(command: str, folder: Path, stdin: str | None) -> subprocess.CompletedProcess[str]:
    arguments = [part.replace("{demo}", str(DEMO)) for part in command.split()]
    assert arguments.pop(0) == "bylaw"
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    return run_bylaw(arguments, cwd=folder, env=environment, stdin=stdin or "")


def _compare(case: dict[str, Any], done: subprocess.CompletedProcess[str], printed: str) -> None:
    for part in case.get("stdout", []):
        assert part in done.stdout, printed
    for part in case.get("stderr", []):
        assert part in done.stderr, printed
    for part in case.get("not_stdout", []):
        assert part not in done.stdout, printed
    assert "Traceback" not in done.stderr, printed
    if "json" in case:
        _includes(json.loads(done.stdout), case["json"])


def _includes(whole: Any, part: Any, path: str = "$") -> None:
    """Every key and element named in `part` stands in `whole`; a list is compared element by element."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in whole, f"{path}.{key} is missing"
            _includes(whole[key], value, f"{path}.{key}")
    elif isinstance(part, list):
        assert len(whole) == len(part), f"{path}: {len(whole)} elements, {len(part)} wanted: {whole}"
        for i, value in enumerate(part):
            _includes(whole[i], value, f"{path}[{i}]")
    else:
        assert whole == part, f"{path}: {whole!r}, {part!r} wanted"
