"""Environments for packages that cannot be installed beside each other: one for each file of requirements."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.authorities import outside_environment

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(os.environ.get("BYLAW_TEST_ENVIRONMENTS") or ROOT / ".venv" / "environments")
"""`make clean` removes them; a folder of your own is kept"""


def python_of(requirements: Path) -> Path:
    """The interpreter of the environment with exactly these packages, which is made if it is not there."""
    content = f"{sys.version_info[:2]}\n{requirements.read_text('utf-8')}"
    folder = FOLDER / f"{requirements.stem}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    python, done = folder / "bin" / "python", folder / "done"
    with (FOLDER / f"{folder.name}.lock").open("w") as lock:  # several processes run tests
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            venv.create(folder, clear=True)
            pip = [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(python),
                "--disable-pip-version-check",
                "-qq",
                "install",
            ]
            subprocess.run(
                [*pip, "--no-compile", "--no-deps", "-r", str(requirements)], check=True, env=outside_environment()
            )
            done.touch()
    return python


def node_modules(package: str) -> Path:
    """A folder with this package of npm, `name@version`."""
    folder = FOLDER / package
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix", str(folder)]
            subprocess.run(["npm", "install", *options, package], check=True, env=outside_environment())
            (folder / "done").touch()
    return folder / "node_modules"


def run_tests(requirements: Path, *files: str) -> str:
    """Run these test files in the environment. Returns the summary that pytest prints; raises AssertionError if a test
    fails."""
    options = ["-q", "-m", "", "-p", "no:cacheprovider", "-o", "filterwarnings=", "-W", "ignore", "-rs"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [str(python_of(requirements)), "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return done.stdout
