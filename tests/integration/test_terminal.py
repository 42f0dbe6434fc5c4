"""What only a real terminal or a real signal shows: the progress bar, Ctrl-C, a reader that goes away."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bylaw.report.progress import LONG

EXAMPLE = Path(__file__).parent.parent.parent / "src" / "bylaw" / "demo" / "files"
COMMAND = [sys.executable, "-m", "bylaw", "check", "--policy", str(EXAMPLE / "bylaw.yaml")]


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's conversations, over and over, until they are worth a progress bar."""
    path = tmp_path_factory.mktemp("long") / "long.jsonl"
    lines = (EXAMPLE / "v1.jsonl").read_bytes()
    path.write_bytes(lines * (LONG // len(lines) + 1))
    return path


def test_a_long_trace_shows_a_bar_on_a_terminal(long_trace: Path) -> None:
    screen, terminal = pty.openpty()
    done = subprocess.Popen([*COMMAND, str(long_trace)], stderr=terminal, stdout=subprocess.DEVNULL)
    os.close(terminal)
    shown = b""
    while chunk := _read(screen):
        shown += chunk
    assert done.wait(timeout=120) == 0
    assert b"%" in shown
    assert b"#" in shown


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # the other end is closed: that is how a terminal says "no more"
        return b""


def test_no_bar_where_nobody_watches(long_trace: Path) -> None:
    done = subprocess.run([*COMMAND, str(long_trace)], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0
    assert done.stderr == b""


def test_ctrl_c_is_130(long_trace: Path) -> None:
    running = subprocess.Popen(
        [*COMMAND, str(long_trace)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # whoever starts the tests in the background has interrupts ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    # Python ignores what is raised inside a destructor, an interrupt too: a person presses the keys again
    while running.poll() is None:
        time.sleep(0.6)
        running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"Traceback" not in errors


def test_a_reader_that_goes_away_is_no_traceback_and_no_pass(long_trace: Path) -> None:
    rules = long_trace.parent / "all.yaml"
    rules.write_text("- {id: r, kind: no_call, params: {tool: '*'}}")
    arguments = [sys.executable, "-m", "bylaw", "check", str(long_trace), "--policy", str(rules), "--all"]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.read(100)
    running.stdout.close()
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 4
    assert b"Traceback" not in errors


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = command.replace("bylaw ", f"{sys.executable} -m bylaw ", 1)
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("bylaw check v2.jsonl > /dev/full", 4),
        ("bylaw lint bylaw.yaml > /dev/full", 4),
        ("bylaw diff v1.jsonl v2.jsonl --format json > /dev/full", 4),
        ("bylaw check v2.jsonl >&-", 1),
        ("bylaw check - <&-", 3),
        ("bylaw check v1.jsonl --format json=/proc/nope", 4),
        ("bylaw check v1.jsonl -o /dev/null", 0),
    ],
)
def test_streams_that_fail_are_no_traceback_and_no_pass(command: str, code: int) -> None:
    done = shell(command, EXAMPLE)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("/dev/null").is_file()
