"""`make demo`: every command that `bylaw demo` suggests exits as it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bylaw.demo import STEPS
from tests.support.command import run_bylaw

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "demo.py"


def test_every_step_of_the_demo_exits_as_it_says() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("(exit")] == [
        f"(exit code {step.exit_code})" for step in STEPS
    ]


def test_an_empty_name_is_no_folder(tmp_path: Path) -> None:
    """`bylaw demo "$UNSET"` must not fill the current folder."""
    done = run_bylaw(["demo", ""], cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


def test_a_folder_with_a_leading_dash_can_be_entered(tmp_path: Path) -> None:
    assert "cd ./-x" in run_bylaw(["demo", "--", "-x"], cwd=tmp_path).stdout


def test_what_to_try_fits_80_columns_and_can_be_pasted(tmp_path: Path) -> None:
    printed = run_bylaw(["demo", "here"], cwd=tmp_path).stdout
    assert [line for line in printed.splitlines() if len(line) > 80] == []
    pasted = "".join(f"{line}\n" for line in printed.splitlines()[4:])
    shell = ["sh", "-c", f'bylaw() {{ echo "bylaw $*"; }}\n{pasted}']
    done = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"bylaw {step.arguments}" for step in STEPS]
