"""Shell completion, through the mechanism of click that the scripts of bash, zsh and fish use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from bylaw.cli import cli
from bylaw.lint.commands import codes
from bylaw.rules.kinds import KINDS
from bylaw.traces.formats.catalogue import FORMATS

PAGE = Path(__file__).parent.parent.parent / "docs" / "completion.md"


def complete(line: str) -> list[str]:
    """The completions of the last word of a command line."""
    *words, last = line.split(" ")
    return [item.value for item in ShellComplete(cli, {}, "bylaw", "_BYLAW_COMPLETE").get_completions(words, last)]


def test_commands_are_completed() -> None:
    assert complete("c") == ["check", "ci", "comply", "contract", "convert"]


def test_flags_are_completed() -> None:
    assert "--policy" in complete("check --p")


@pytest.mark.parametrize("command", ["check", "diff", "comply", "contract run", "guard backtest"])
def test_output_formats_are_completed(command: str) -> None:
    assert {"json", "terminal"} <= set(complete(f"{command} --format "))
    assert complete(f"{command} --format js") == ["json"]


@pytest.mark.parametrize("command", ["check", "diff", "inspect", "convert", "guard backtest"])
def test_trace_formats_are_completed(command: str) -> None:
    assert complete(f"{command} --from ") == list(FORMATS)
    assert complete(f"{command} --from lang") == ["langsmith", "langfuse", "langchain"]


def test_codes_and_kinds_are_completed() -> None:
    assert complete("explain ") == [*codes(), *sorted(KINDS)]
    assert complete("explain must_call") == ["must_call_before", "must_call_once"]


@pytest.mark.parametrize("line", ["check ", "check --policy ", "diff ", "convert ", "lint ", "guard decide --policy "])
def test_file_names_are_left_to_the_shell(line: str) -> None:
    *words, last = f"{line}runs/".split(" ")
    items = ShellComplete(cli, {}, "bylaw", "_BYLAW_COMPLETE").get_completions(words, last)
    assert [(item.type, item.value) for item in items] == [("file", "runs/")]


def test_choices_are_completed() -> None:
    assert "warning" in complete("check --fail-on ")


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from bylaw.cli import main; sys.argv = ['bylaw']; main()"
    arguments = [sys.executable, "-c", program]
    return subprocess.run(arguments, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    done = run(_BYLAW_COMPLETE=f"{shell}_source")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_BYLAW_COMPLETE={shell}_complete" in done.stdout


def test_a_completion_reaches_the_shell() -> None:
    done = run(_BYLAW_COMPLETE="fish_complete", COMP_WORDS="bylaw explain", COMP_CWORD="no_c")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no_call" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_line_for_bash_works() -> None:
    """The line that docs/completion.md shows, in a real bash."""
    line = re.search(r"`~/\.bashrc` \| `(.*)` \|", PAGE.read_text("utf-8"))
    assert line is not None
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = (
        f"{line[1]}\nCOMP_WORDS=(bylaw explain no_ca); COMP_CWORD=2; _bylaw_completion bylaw; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("no_call\n", "")
