"""Formats, targets and files: a job declares its renderers, and nothing else has to know a new format."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bylaw.report.command_line import output_options
from bylaw.report.output import Renderers, Target, file_target, write_reports


@pytest.fixture
def renderers(monkeypatch: pytest.MonkeyPatch) -> Renderers:
    """The formats of a job of these tests: a new one is a module with a function, and one line."""
    module = ModuleType("shout")
    module.render = lambda report: f"{report.upper()}!\n"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shout", module)
    return Renderers(terminal="builtins:str", shout="shout:render", json="json:dumps")


def _run(renderers: Renderers, *arguments: str) -> Result:
    @click.command(name="job")
    @output_options(renderers, job="job")
    @click.option("--fail", is_flag=True)
    def command(targets: list[Target], fail: bool) -> None:
        if fail:
            raise click.UsageError("--fail was given")
        write_reports(renderers, targets, "a report")

    return CliRunner().invoke(command, arguments)


def test_a_new_format_is_a_module_and_one_line(renderers: Renderers, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    assert _run(renderers, "--format", "shout").stdout == "A REPORT!\n"
    assert _run(renderers, "--format", f"shout={file}", "--format", "json").stdout == '"a report"'
    assert file.read_text() == "A REPORT!\n"
    assert "terminal, shout, json" in _run(renderers, "--help").stdout


@pytest.mark.parametrize("arguments", [["--format", "shout", "-o", "-"], ["--format", "shout=-"]])
def test_a_dash_is_standard_output(
    renderers: Renderers, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(renderers, *arguments).stdout == "A REPORT!\n"
    assert list(tmp_path.iterdir()) == []
    assert _run(renderers, *arguments, "--format", "json=a.json").stdout == "A REPORT!\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert _run(renderers, "-o", "./-").stdout == ""
    assert Path("./-").read_text() == "a report"


def test_other_files_are_not_mixed_into_standard_output() -> None:
    with pytest.raises(click.UsageError, match="name a file"):
        file_target("-")


def test_renderers_are_imported_only_when_they_are_used() -> None:
    renderers = Renderers(terminal="builtins:str", other="no.such.module:render")
    assert list(renderers) == ["terminal", "other"]
    assert renderers["terminal"](1) == "1"
    with pytest.raises(ModuleNotFoundError):
        renderers["other"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "xml"], "unknown format `xml` (choose from terminal, shout, json)"),
        (["--format", "json="], "names no file"),
        (["--format", "json=a.out", "--format", "shout=./a.out"], "`./a.out` is named for two formats"),
        (["--format", "json", "--format", "shout"], "only one --format can go to standard output"),
        (["--format", "json=a.json", "--output", "b.json"], "--output needs exactly one --format"),
        (["--format", "json=-", "--format", "shout"], "only one --format can go to standard output"),
        (["--format", "json=-", "--format", "shout", "-o", "-"], "only one --format can go to standard output"),
        (["--format", "json=-", "--output", "b.json"], "--output needs exactly one --format"),
        (["--output", "no/such/folder/a.txt"], "does not exist"),
        (["--output", "/"], "is a folder"),
    ],
)
def test_bad_targets_are_usage_errors(renderers: Renderers, arguments: list[str], message: str) -> None:
    done = _run(renderers, *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize("target", ["--format json", "--format json=FILE", "--format json -o FILE"])
def test_a_usage_error_of_the_command_is_a_document_in_every_target(
    renderers: Renderers, target: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    done = _run(renderers, "--fail", *target.replace("FILE", str(file)).split())
    document: dict[str, Any] = json.loads(file.read_text() if "FILE" in target else done.stdout)
    assert done.exit_code == document["exit_code"] == 2
    assert document["schema"] == "bylaw.job/1"
    assert [problem["message"] for problem in document["diagnostics"]] == ["--fail was given"]
    assert "--fail was given" in done.stderr


def test_a_format_without_a_document_for_bad_input_is_left_empty(renderers: Renderers, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text("older")
    done = _run(renderers, "--fail", "--format", "shout")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--fail was given" in done.stderr
    assert _run(renderers, "--fail", "--format", f"shout={file}").exit_code == 2
    assert file.read_text() == ""
    assert _run(renderers, "--fail", "-o", str(file)).exit_code == 2
    assert file.read_text().startswith("BAD INPUT\n")


def test_a_file_is_replaced_only_by_a_whole_report(renderers: Renderers, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text("older")

    def fail(report: str) -> str:
        raise RuntimeError

    sys.modules["shout"].render = fail  # type: ignore[attr-defined]
    assert isinstance(_run(renderers, "--format", f"shout={file}").exception, RuntimeError)
    assert file.read_text() == "older"
    assert list(tmp_path.iterdir()) == [file]
