"""The bounded variant of `make fuzz`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.fuzz.run import run_many

# Two workers that have begun, and would sleep on: the output stays open as long as one of them lives.
SLEEPERS = """
import time, multiprocessing
from tests.support.processes import end_with_parent

def sleep(_):
    print("begun", flush=True)
    time.sleep(3600)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2, end_with_parent) as pool:
        pool.map(sleep, range(2))
"""


def test_mutated_inputs_are_read_or_refused_never_worse() -> None:
    outcome = run_many(seed=7, first=0, count=150)
    assert outcome.failures == []
    assert outcome.accepted > 30
    assert outcome.refused > 30


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "sleepers.py"
    script.write_text(SLEEPERS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(2)] == [b"begun\n"] * 2
        parent.send_signal(signal.SIGKILL)
        assert parent.communicate(timeout=300)[0] == b""
