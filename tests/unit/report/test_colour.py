"""Colours: the flags before and after a sub-command, then NO_COLOR, FORCE_COLOR and TERM, then the terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bylaw.report.output import colour_from_environment
from tests.support.command import run_bylaw

TRACE = '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}\n'
RULES = "- {id: greet, kind: must_include_text, params: {text: goodbye}}\n"
GUARD = "guard:\n  rules:\n    - {id: g, when: {tool_name_in: [x]}, then: block, reason: forbidden}\n"
COLOURED = "\x1b["

COMMANDS = {
    "command": ["check", "run.jsonl", "-p", "rules.yaml"],
    "command of a group": ["guard", "backtest", "guard.yaml", "run.jsonl"],
}


def _has_colours(arguments: list[str], folder: Path, **environment: str) -> bool:
    (folder / "run.jsonl").write_text(TRACE)
    (folder / "rules.yaml").write_text(RULES)
    (folder / "guard.yaml").write_text(GUARD)
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    done = run_bylaw(arguments, cwd=folder, env={**clean, **environment})
    assert done.returncode in (0, 1, 3), done.stderr
    return COLOURED in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_work_before_and_after_the_command(name: str, tmp_path: Path) -> None:
    arguments = COMMANDS[name]
    assert not _has_colours(arguments, tmp_path)
    for place in range(len(arguments) + 1):
        if arguments[place - 1] != "-p":  # an option and its value stay together
            assert _has_colours([*arguments[:place], "--color", *arguments[place:]], tmp_path), place


@pytest.mark.parametrize("name", COMMANDS)
def test_the_environment_decides_without_a_flag(name: str, tmp_path: Path) -> None:
    arguments = COMMANDS[name]
    assert _has_colours(arguments, tmp_path, FORCE_COLOR="1")
    assert not _has_colours(arguments, tmp_path, FORCE_COLOR="1", NO_COLOR="1")
    assert not _has_colours([*arguments, "--no-color"], tmp_path, FORCE_COLOR="1")
    assert _has_colours([*arguments, "--color"], tmp_path, NO_COLOR="1", TERM="dumb")


@pytest.mark.parametrize("arguments", [["--color", "check", "--no-color"], ["--no-color", "check", "--no-color"]])
def test_the_later_flag_wins(arguments: list[str], tmp_path: Path) -> None:
    assert not _has_colours([*arguments, "run.jsonl", "-p", "rules.yaml"], tmp_path)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, None),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, None),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "false"}, False),
        ({"FORCE_COLOR": ""}, None),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"TERM": "xterm-256color"}, None),
    ],
)
def test_colour_from_environment(environment: dict[str, str], wanted: bool | None) -> None:
    assert colour_from_environment(environment) is wanted
