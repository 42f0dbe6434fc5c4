"""The JSON document of a command has the same schema and job, whether it is a report or a list of problems."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bylaw.cli import cli, main
from bylaw.demo import FILES

COMMANDS = {
    "check": ("v1.jsonl -p bylaw.yaml", "v1.jsonl -p bad.yaml"),
    "ci": ("bylaw.yaml --traces v1.jsonl", "bad.yaml --traces v1.jsonl"),
    "comply": ("--prompt prompt.md v2.jsonl", "--prompt nowhere.md v2.jsonl"),
    "comply diff": ("prompt.md prompt.md", "prompt.md nowhere.md"),
    "comply rules": ("--prompt prompt.md", "--prompt nowhere.md"),
    "contract run": ("contract.yaml", "bad.yaml"),
    "contract validate": ("contract.yaml", "bad.yaml"),
    "diff": ("v1.jsonl v2.jsonl", "v1.jsonl nowhere.jsonl"),
    "guard backtest": ("guard.yaml v1.jsonl", "bad.yaml v1.jsonl"),
    "lint": ("bylaw.yaml", "bad.yaml"),
}
"""each command with `--format`: arguments that give a report, and arguments with bad input"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in FILES.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    (tmp_path / "bad.yaml").write_text("rules: [\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")


def test_every_command_with_formats_is_listed() -> None:
    have = {name for name, command in _commands(cli) if any(one.name == "formats" for one in command.params)}
    assert have == set(COMMANDS) - {"comply"}  # a group that runs a hidden command if none is named


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_input_has_the_schema_of_the_report(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def document(arguments: str) -> tuple[int | str | None, dict[str, Any]]:
        with pytest.raises(SystemExit) as end:
            main([*name.split(), *arguments.split(), "--format", "json"])
        return end.value.code, json.loads(capsys.readouterr().out)

    good, bad = COMMANDS[name]
    code, report = document(good)
    assert code in (0, 1, 3)
    code, problems = document(bad)
    assert (code, problems["exit_code"]) == (2, 2)
    assert (problems["schema"], problems["job"]) == (report["schema"], report["job"])
    assert " " not in report["schema"]
