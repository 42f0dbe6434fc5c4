"""Behaviour that only a real terminal, signal or pipe shows: Ctrl-C, a reader that goes away, streams that fail."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "src" / "bylaw" / "demo" / "files"
COMMAND = [sys.executable, "-m", "bylaw", "check", "--policy", str(EXAMPLE / "bylaw.yaml")]


@pytest.mark.parametrize(("terminal", "has_colours"), [("xterm", True), ("dumb", False)])
def test_a_terminal_gets_colours_unless_it_is_dumb(terminal: str, has_colours: bool) -> None:
    screen, end = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment["TERM"] = terminal
    running = subprocess.Popen([*COMMAND, str(EXAMPLE / "v2.jsonl")], stdout=end, env=environment)
    os.close(end)
    shown = b""
    while chunk := _read(screen):
        shown += chunk
    assert running.wait(timeout=120) == 1
    assert (b"\x1b[" in shown) is has_colours
    assert b"FAILED" in shown


@pytest.mark.parametrize(("less", "has_colours"), [("", True), ("-FX", False), ("-R", True)])
def test_a_pager_gets_colours_only_if_it_shows_them(less: str, has_colours: bool, tmp_path: Path) -> None:
    pager = tmp_path / "less"
    pager.write_text(f'#!/bin/sh\necho "$LESS" > {tmp_path}/options\ncat > {tmp_path}/shown\n')
    pager.chmod(0o755)
    screen, end = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm", "PAGER": str(pager), "LESS": less}
    arguments = [sys.executable, "-m", "bylaw", "inspect", str(EXAMPLE / "v2.jsonl")]
    subprocess.run(arguments, stdin=end, stdout=end, env=environment, check=True, timeout=120)
    os.close(screen)
    os.close(end)
    shown = (tmp_path / "shown").read_bytes()
    assert b"issue_refund" in shown
    assert (b"\x1b[" in shown) is has_colours
    assert not has_colours or "R" in (tmp_path / "options").read_text()


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # the other end is closed
        return b""


def test_ctrl_c_is_130() -> None:
    lines = (EXAMPLE / "v1.jsonl").read_bytes()
    with subprocess.Popen(
        [*COMMAND, "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as running:
        assert running.stdin is not None and running.stderr is not None
        # more than a pipe holds: once all of it is written, the command is reading and waits for more
        running.stdin.write(lines * (1_000_000 // len(lines)))
        running.stdin.flush()
        while running.poll() is None:
            running.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):  # Python misses one that comes just before a read
                running.wait(timeout=30)
        errors = running.stderr.read()
    assert running.returncode == 130
    assert b"Traceback" not in errors


def test_a_reader_that_goes_away_is_no_traceback_and_no_pass(tmp_path: Path) -> None:
    rules, trace = tmp_path / "all.yaml", tmp_path / "long.jsonl"
    rules.write_text("- {id: r, kind: no_call, params: {tool: '*'}}")
    trace.write_bytes((EXAMPLE / "v1.jsonl").read_bytes() * 300)
    arguments = [sys.executable, "-m", "bylaw", "check", str(trace), "--policy", str(rules), "--all"]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.read(100)
    running.stdout.close()
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 4
    assert b"Traceback" not in errors


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = command.replace("bylaw ", f"{sys.executable} -m bylaw ", 1)
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("bylaw check v2.jsonl > /dev/full", 4),
        ("bylaw lint bylaw.yaml > /dev/full", 4),
        ("bylaw diff v1.jsonl v2.jsonl --format json > /dev/full", 4),
        ("bylaw check v2.jsonl >&-", 4),
        ("bylaw check v1.jsonl >&-", 4),
        ("bylaw check v2.jsonl -o /dev/null >&-", 1),
        ("bylaw convert v1.jsonl - >&-", 4),
        ("bylaw convert v1.jsonl /dev/stdout >&-", 4),
        ("bylaw check v1.jsonl --format json=/dev/stdout >&-", 4),
        ("bylaw check v1.jsonl -o /dev/fd/1 >&-", 4),
        ("bylaw check v1.jsonl -o /proc/self/fd/1 >&- <&-", 4),
        ("bylaw check - <&-", 3),
        ("bylaw check v1.jsonl --format json=/proc/nope", 4),
        ("bylaw check v1.jsonl -o /dev/full", 4),
        ("bylaw check v1.jsonl -o /dev/null", 0),
    ],
)
def test_streams_that_fail_are_no_traceback_and_no_pass(command: str, code: int) -> None:
    done = shell(command, EXAMPLE)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) <= 1 or code == 3, "one reason"
    assert "Traceback" not in done.stderr
    assert not Path("/dev/null").is_file()
