"""Every file that a command reads may be missing, a folder, or no text: that is bad input, and said so."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from bylaw.cli import main

TRACE = '{"type": "tool_call", "session": "s", "turn": 0, "call_id": "c", "name": "ls", "arguments": {}}\n'
RULES = "rules:\n  - {id: no-rm, kind: no_call, params: {tool: rm}}\n"
GUARD = "guard:\n  rules:\n    - {id: no-rm, when: {tool_name_in: [rm]}, then: block}\n"

REPORTS = (
    "check {bad} -p rules.yaml",
    "check run.jsonl -p {bad}",
    "diff {bad} run.jsonl",
    "diff run.jsonl {bad}",
    "diff run.jsonl run.jsonl -p {bad}",
    "diff run.jsonl run.jsonl --prices {bad}",
    "comply {bad} --prompt prompt.md",
    "comply run.jsonl --prompt {bad}",
    "comply run.jsonl --prompt prompt.md --rules {bad}",
    "comply run.jsonl --prompt prompt.md --tools {bad}",
    "comply run.jsonl --prompt prompt.md --alias {bad}",
    "comply rules --prompt {bad}",
    "comply diff prompt.md {bad}",
    "lint {bad}",
    "ci {bad}",
    "contract run {bad}",
    "guard backtest {bad} run.jsonl",
    "guard backtest guard.yaml {bad}",
    "guard backtest guard.yaml run.jsonl --against {bad}",
)
"""commands that write a report in JSON"""
OTHERS = (
    "inspect {bad}",
    "inspect run.jsonl {bad}",
    "convert {bad} out.jsonl",
    "contract import {bad}",
    "contract validate {bad}",
    "contract score {bad}",
    "guard decide -p {bad}",
    "guard decide -p guard.yaml --history {bad}",
    "guard decide -p guard.yaml --tools {bad}",
    "guard propose {bad}",
    "guard propose run.jsonl --tools {bad}",
    "guard export {bad}",
    "guard promote no-rm -p {bad} --store guard.db",
    "guard serve -p {bad}",
    "guard serve -p guard.yaml --config {bad}",
    "guard mcp run -p {bad} -- true",
    "guard mcp run -p guard.yaml --config {bad}",
)
BAD = {"missing": "nowhere.yaml", "folder": "folder", "binary": "binary.yaml"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "folder").mkdir()
    (folder / "binary.yaml").write_bytes(b"\x80\x81\xfe\xff" * 9)
    for name, text in (("run.jsonl", TRACE), ("rules.yaml", RULES), ("guard.yaml", GUARD), ("prompt.md", "Be kind.\n")):
        (folder / name).write_text(text)
    return folder


def _run(command: str, bad: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(command.format(bad=bad).split())
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", REPORTS)
def test_a_report_about_an_unusable_file_says_so(
    folder: Path, command: str, bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    code, out, err = _run(f"{command} --format json", BAD[bad], capsys)
    document = json.loads(out)
    assert (code, document["exit_code"]) == (2, 2)
    assert BAD[bad] in err


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", OTHERS)
def test_a_command_with_an_unusable_file_says_so(
    folder: Path, command: str, bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO('{"tool": "ls"}'))
    code, _, err = _run(command, BAD[bad], capsys)
    assert code == 2
    assert BAD[bad] in err
