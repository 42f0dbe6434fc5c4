"""`bylaw convert` as a user meets it, and its twin in Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bylaw
from bylaw.cli import main
from bylaw.model.events import Trace
from bylaw.traces import read_trace
from tests.exporters.support import RECORDED
from tests.importers.support import lines


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.jsonl").write_bytes(lines(*RECORDED))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(["convert", *arguments])
    assert isinstance(done.value.code, int)
    return done.value.code


def test_there_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run.jsonl", "run.otlp.jsonl.gz") == 0
    assert run("run.otlp.jsonl.gz", "run.atif.json") == 0
    assert run("run.atif.json", "copy.jsonl.zst") == 0
    assert bylaw.load_trace("copy.jsonl.zst").events == bylaw.load_trace("run.jsonl").events
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err.splitlines() == [
        "run.jsonl → run.otlp.jsonl.gz: 13 events, 3 turns, 1 session, as otlp",
        "run.otlp.jsonl.gz → run.atif.json: 13 events, 3 turns, 1 session, as atif",
        "run.atif.json → copy.jsonl.zst: 13 events, 3 turns, 1 session, as bylaw",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no trace given: bylaw convert TRACE... OUT"),
        (["run.jsonl"], "OUT is missing: bylaw convert run.jsonl OUT"),
        (["run.jsonl", "--to", "otlp"], "OUT is missing: bylaw convert run.jsonl OUT"),
        (["run.jsonl", "out.txt"], "`out.txt` does not name a format"),
        (["run.jsonl", "out.txt", "--to", "otpl"], "unknown format to write `otpl`; did you mean `otlp`?"),
        (["run.jsonl", "--to", "csv"], "unknown format to write `csv` (choose from bylaw, atif, otlp)"),
        (["run.jsonl", "out.jsonl", "--from", "otpl"], "unknown trace format `otpl`; did you mean `otlp`?"),
        (["run.jsonl", "nowhere/out.jsonl"], "the folder of `nowhere/out.jsonl` does not exist"),
        (["run.jsonl", "run.jsonl"], "`run.jsonl` exists; --force replaces it"),
        (["nowhere.jsonl", "out.jsonl"], "no such file\n --> nowhere.jsonl"),
        (["run.jsonl", "other.jsonl", "out.jsonl"], "2 traces need a folder as OUT: `out.jsonl/`"),
        (["run.jsonl", "other.jsonl", "-"], "standard output takes one trace, and these are 2"),
        (["run.jsonl", "sub/run.jsonl", "out/"], "two traces would be written to `out/run.jsonl`"),
    ],
)
def test_impossible_conversions_are_reported_and_nothing_is_written(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkdir("sub")
    for name in ("other.jsonl", "sub/run.jsonl"):
        Path(name).write_bytes(lines(*RECORDED))
    before = sorted(Path().rglob("*"))
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before
    assert Path("run.jsonl").read_bytes() == lines(*RECORDED)


def test_force_replaces_even_the_file_that_is_read() -> None:
    wanted = bylaw.load_trace("run.jsonl").events
    assert run("run.jsonl", "run.jsonl", "--force") == 0
    assert bylaw.load_trace("run.jsonl").events == wanted
    os.symlink("run.jsonl", "link.jsonl")
    assert run("link.jsonl", "link.jsonl", "--force") == 0
    assert Path("link.jsonl").is_symlink()
    assert bylaw.load_trace("run.jsonl").events == wanted


def test_nothing_to_convert_is_not_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.jsonl").touch()
    assert run("empty.jsonl", "out.jsonl") == 3
    assert not Path("out.jsonl").exists()
    assert capsys.readouterr().err == "empty.jsonl: nothing to convert\nnote: the file is empty\n"


def test_bad_records_are_shown_and_leave_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.jsonl").write_bytes(lines(*RECORDED) + b'{"kind": "respones"}\n')
    assert run("bad.jsonl", "out.jsonl") == 2
    reported = capsys.readouterr().err
    assert "error[unknown-kind]: unknown record kind `respones`" in reported
    assert f"bad.jsonl:{len(RECORDED) + 1}:10" in reported
    assert sorted(os.listdir()) == ["bad.jsonl", "run.jsonl"]
    assert run("bad.jsonl", "out.jsonl", "--skip-bad") == 0
    assert "note: 1 bad record skipped" in capsys.readouterr().err
    assert bylaw.load_trace("out.jsonl").skipped == 1


def test_a_folder_gets_a_file_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    Path("second.jsonl").write_bytes(lines(*RECORDED))
    Path("third.jsonl").write_bytes(b"{")
    assert run("*.jsonl", "out/", "--to", "otlp") == 2
    assert sorted(os.listdir("out")) == ["run.otlp.jsonl", "second.otlp.jsonl"]
    assert "third.jsonl" in capsys.readouterr().err


def test_sessions_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    other = {"kind": "response", "session": "s2", "content": "x"}
    Path("two.jsonl").write_bytes(lines(*RECORDED, other))
    assert run("two.jsonl", "out.jsonl", "--session", "s2") == 0
    assert bylaw.load_trace("out.jsonl").sessions == ("s2",)
    assert [event.turn for event in bylaw.load_trace("out.jsonl").events] == [3]
    assert run("two.jsonl", "none.jsonl", "--session", "s22") == 3
    assert "no session `s22` in two.jsonl: did you mean `s2`?" in capsys.readouterr().err
    assert not Path("none.jsonl").exists()


def test_read_as_a_format_that_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run.jsonl", "out.jsonl", "--from", "otlp") == 2
    assert "holds nothing that can be read as `otlp`" in capsys.readouterr().err
    assert not Path("out.jsonl").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
@pytest.mark.parametrize("suffix", [".jsonl", ".otlp.jsonl", ".atif.json"])
def test_a_name_that_is_no_utf8(suffix: str) -> None:
    name = os.fsdecode(b"run-\xff\xe9.jsonl")
    os.rename("run.jsonl", name)
    assert run(name, os.fsdecode(b"out-\xff") + suffix) == 0
    copy = bylaw.load_trace(os.fsdecode(b"out-\xff") + suffix)
    assert copy.events == bylaw.load_trace(name).events
    source = copy.events[0].source
    assert source is not None and source.file == r"run-\udcff\udce9.jsonl"


def test_standard_input_and_output() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bylaw", "convert", "-", "-", "--to", "atif"],
        input=lines(*RECORDED),
        capture_output=True,
        check=True,
    )
    assert read_trace(done.stdout).format == "atif"
    assert done.stderr.decode() == "- → standard output: 13 events, 3 turns, 1 session, as atif\n"


def test_a_reader_that_goes_away_and_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    Path("long.jsonl").write_bytes(lines(*RECORDED * 400))
    with subprocess.Popen(
        [sys.executable, "-m", "bylaw", "convert", "long.jsonl", "-", "--skip-bad"], stdout=-1, stderr=-1
    ) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr is not None
        reported = process.stderr.read()
    assert (process.returncode, b"Traceback" in reported) == (4, False)
    if os.path.exists("/dev/full"):
        assert run("run.jsonl", "/dev/full", "--to", "otlp") == 4
        assert capsys.readouterr().err == "cannot go on: No space left on device: `/dev/full`\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]
)
def test_an_interrupted_one_leaves_nothing(number: signal.Signals, code: int) -> None:
    """It runs with a low priority, so that it cannot end before the signal comes on a busy machine."""
    Path("long.jsonl").write_bytes(lines(*RECORDED[:1]) + lines(*RECORDED[1:]) * 8_000)
    command = [sys.executable, "-m", "bylaw", "convert", "long.jsonl", "out.otlp.jsonl"]
    with subprocess.Popen(["nice", "-n", "10", *command], stderr=-1) as process:
        deadline = time.monotonic() + 300
        while not any(name.endswith(".part") for name in os.listdir()) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        process.wait()
    assert process.returncode == code
    assert sorted(os.listdir()) == ["long.jsonl", "run.jsonl"]


def test_in_python() -> None:
    done = bylaw.convert("run.jsonl", "run.otlp.jsonl")
    assert (done.events, done.turns, done.sessions, done.format, done.exit_code) == (13, 3, 1, "otlp", 0)
    with pytest.raises(FileExistsError, match="exists"):
        bylaw.convert("run.jsonl", "run.otlp.jsonl")
    bylaw.convert(bylaw.load_trace("run.otlp.jsonl"), "run.otlp.jsonl", overwrite=True, sessions=["s1"])
    assert bylaw.load_trace("run.otlp.jsonl").events == bylaw.load_trace("run.jsonl").events
    assert bylaw.convert(Trace(name="t"), "none.jsonl").exit_code == 3
    with pytest.raises(ValueError, match="does not say which format"):
        bylaw.convert("run.jsonl", "run.txt")
    with pytest.raises(ValueError, match="expected one of bylaw, atif, otlp"):
        bylaw.convert("run.jsonl", "run.txt", to="csv")
    with pytest.raises(ValueError, match="expected a list of ids"):
        bylaw.convert("run.jsonl", "run.txt", to="atif", sessions="s1")
