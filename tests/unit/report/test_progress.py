"""Progress bars: on a terminal, for long files and for folders of files, once the work takes long."""

from __future__ import annotations

import os
import pty
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bylaw.cli import cli
from bylaw.report import progress

EXAMPLE = Path(__file__).parent.parent.parent.parent / "src" / "bylaw" / "demo" / "files"

COMMANDS = {
    "check": ["check", "runs", "-p", str(EXAMPLE / "bylaw.yaml"), "-o", "report.txt"],
    "diff": ["diff", "runs", "runs", "-o", "report.txt"],
    "convert": ["convert", "runs", "out/"],
    "guard backtest": ["guard", "backtest", str(EXAMPLE / "guard.yaml"), "runs", "-o", "report.txt"],
    "comply": ["comply", "--prompt", str(EXAMPLE / "prompt.md"), "runs", "-o", "report.txt"],
    "ci": ["ci", "-c", str(EXAMPLE / "bylaw.yaml"), "--traces", "runs", "-o", "report.txt"],
    "ci with a diff": ["ci", "-c", "none.yaml", "--baseline", "runs", "--candidate", "runs", "-o", "report.txt"],
}
TRACES = {name: 6 if "diff" in name else 3 for name in COMMANDS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").mkdir()
    for number in range(3):
        shutil.copy(EXAMPLE / "v1.jsonl", tmp_path / "runs" / f"{number}.jsonl")
    (tmp_path / "none.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Screen:
    """What a terminal shows in the end."""

    text = ""


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A terminal as standard error."""
    ours, theirs = pty.openpty()
    screen, chunks = Screen(), []

    def read() -> None:
        while True:
            try:
                chunks.append(os.read(ours, 4096))
            except OSError:  # the other end is closed
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        yield screen
    reader.join(timeout=60)
    os.close(ours)
    screen.text = b"".join(chunks).decode()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars appear at once and are never out of date."""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)


@pytest.mark.usefixtures("folder", "at_once")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_of_traces_shows_a_bar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen:
        cli.main(COMMANDS[name], standalone_mode=False)
    for number in range(1, TRACES[name] + 1):
        place = f"{number}/3" if name == "comply" else f"trace {number} of {TRACES[name]}"
        assert place in screen.text


@pytest.mark.usefixtures("at_once")
def test_a_long_file_shows_how_much_of_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "long.jsonl").write_bytes((EXAMPLE / "v1.jsonl").read_bytes() * 1_000)
    arguments = ["check", "long.jsonl", "-p", str(EXAMPLE / "bylaw.yaml"), "-o", "report.txt"]
    with terminal(monkeypatch) as screen:
        cli.main(arguments, standalone_mode=False)
    percentages = {part.split("%")[0].split()[-1] for part in screen.text.split("\r") if "%" in part}
    assert "trace 1 of 1" in screen.text
    assert len(percentages) > 2


@pytest.mark.usefixtures("folder")
def test_short_work_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 3_600.0)
    with terminal(monkeypatch) as screen:
        cli.main(COMMANDS["check"], standalone_mode=False)
    assert screen.text == ""


@pytest.mark.usefixtures("folder", "at_once")
def test_no_bar_away_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(COMMANDS["check"], standalone_mode=False)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("at_once")
def test_counted_work_shows_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen, progress.count_progress("refunds") as report:
        assert report is not None
        for done in range(4):
            report(done, 3)
    assert "refunds" in screen.text
    assert "3/3" in screen.text
