"""Ctrl-C: a document that is written piece by piece is ended, and the exit code is 130."""

from __future__ import annotations

import builtins
import importlib
import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bylaw.__main__ as program
from bylaw.cli import main
from bylaw.demo import FILES
from bylaw.report.output import interrupts_wait


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("v1.jsonl", "v2.jsonl", "bylaw.yaml"):
        shutil.copy(FILES / name, tmp_path)
    monkeypatch.chdir(tmp_path)


def _run(line: str) -> int | str | None:
    with pytest.raises(SystemExit) as end:
        main(line.split())
    return end.value.code


def _interrupt_in_call(number: int, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function; while it is called for the `number`th time, Ctrl-C is pressed."""
    calls = 0

    def interrupted(value: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            signal.raise_signal(signal.SIGINT)
        return function(value)

    return interrupted


def test_all_findings_as_json_end_as_a_whole_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = importlib.import_module("bylaw.check.command")
    monkeypatch.setattr(check, "finding_as_json", _interrupt_in_call(2, check.finding_as_json))
    assert _run("check v2.jsonl --all --format json") == 130
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert (document["schema"], document["exit_code"], document["diagnostics"]) == ("bylaw.check/1", 130, [])
    assert len(document["findings"]) == 2
    assert shown.err.strip() == "interrupted"


def test_an_interrupt_before_the_first_finding_is_a_whole_document_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = importlib.import_module("bylaw.check.api")
    monkeypatch.setattr(api.Check, "add", lambda job, trace: signal.raise_signal(signal.SIGINT))
    assert _run("check v2.jsonl --all --format json") == 130
    assert json.loads(capsys.readouterr().out)["exit_code"] == 130
    assert _run("check v2.jsonl --all") == 130
    assert capsys.readouterr().out == "✗ INTERRUPTED: the findings above are incomplete\n"
    Path("report.json").write_text("older")
    assert _run("check v2.jsonl --all --format json=report.json") == 130
    assert Path("report.json").read_text() == "older"


def test_a_timeline_as_json_ends_with_its_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bylaw.inspect.report import json as report

    monkeypatch.setattr(report, "entry_line", _interrupt_in_call(3, report.entry_line))
    assert _run("inspect v1.jsonl --json") == 130
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (lines[-1]["kind"], lines[-1]["exit_code"]) == ("end", 130)


def test_a_second_interrupt_does_not_wait() -> None:
    reached: list[int] = []
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        for number in range(3):
            signal.raise_signal(signal.SIGINT)
            reached.append(number)
    assert reached == [0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("command", "module", "code", "message"),
    [
        ("check", "bylaw.cli", 130, "interrupted\n"),
        ("hook", "bylaw.guard.integrations.hooks", 2, "bylaw: the call is not allowed: interrupted\n"),
    ],
)
def test_an_interrupt_during_the_imports_is_no_traceback(
    command: str,
    module: str,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = builtins.__import__

    def interrupt(name: str, *more: Any) -> Any:
        if name == module:
            raise KeyboardInterrupt
        return own(name, *more)

    monkeypatch.setattr(sys, "argv", ["bylaw", command])
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", interrupt)
        ended: object = None
        try:
            program.main()
        except BaseException as problem:  # pytest would end at a KeyboardInterrupt
            ended = problem
    assert isinstance(ended, SystemExit)
    assert ended.code == code
    assert capsys.readouterr().err == message
