"""The committed generated files are up to date."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.pages import ROOT


def test_generated_files_are_up_to_date() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "generate.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
