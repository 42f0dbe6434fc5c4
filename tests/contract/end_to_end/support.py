"""A folder with a contract and the agents of `examples/agents`, run by the command as a user runs it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.command import run_bylaw

HERE = Path(__file__).parent
AGENTS = HERE.parents[2] / "examples" / "agents"
CALM = {"name": "calm"}
ORDER = "Where is order A-17?"

GOOD = {"endpoint": "good:agent"}
FABRICATING = {"endpoint": "fabricating:agent"}
CALLS_FAIL = {"name": "orders down", "tool_faults": [{"tool": "find_order", "mode": "error", "error_code": 503}]}
ANSWERS = {"id": "answers", "type": "completes"}
NEVER_INVENTS = {
    "id": "never-invents",
    "type": "regex",
    "pattern": r"\$\d|refunded",
    "negate": True,
    "severity": "critical",
    "when": "tool_faults_active",
}


@dataclass(frozen=True)
class Ran:
    """What the command said."""

    code: int
    report: dict[str, Any]
    stdout: str
    stderr: str

    @property
    def cells(self) -> dict[tuple[str, str], str]:
        return {(cell["invariant"], cell["scenario"]): cell["outcome"] for cell in self.report["cells"]}

    def cell(self, invariant: str, scenario: str = "calm") -> dict[str, Any]:
        wanted = (invariant, scenario)
        return next(cell for cell in self.report["cells"] if (cell["invariant"], cell["scenario"]) == wanted)

    def answers(self, invariant: str, scenario: str = "calm") -> list[str]:
        return [one["answer"] for one in self.cell(invariant, scenario)["evidence"]]

    def fired(self, scenario: str) -> list[int]:
        cell = next(cell for cell in self.report["cells"] if cell["scenario"] == scenario)
        return [fault["fired"] for fault in cell["faults"]]

    @property
    def codes(self) -> set[str]:
        return {diagnostic["code"] for diagnostic in self.report["diagnostics"]}


class Folder:
    """Where a contract stands, with agents beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for file in (*(AGENTS / "python").glob("*.py"), *HERE.glob("[cw]*.py")):
            shutil.copy(file, path)

    def write(self, *, invariants: Any = (ANSWERS,), matrix: Any = (CALM,), agent: Any = None, **more: Any) -> Folder:
        """`agent`: its fields, or the name of one of `clerks.py`."""
        spec = {"endpoint": f"clerks:{agent}"} if isinstance(agent, str) else agent or GOOD
        file = {
            "contract": {"name": "c", "invariants": list(invariants), **more.pop("contract", {})},
            "chaos_matrix": list(matrix),
            "agent": spec,
            "golden_prompts": [ORDER],
            **more,
        }
        wanted = {key: value for key, value in file.items() if value is not None}
        (self.path / "bylaw.yaml").write_text(yaml.safe_dump(wanted, sort_keys=False))
        return self

    def run(self, *flags: str, command: str = "contract run") -> Ran:
        done = self.bylaw(*command.split(), "--format", "json", *flags)
        return Ran(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stdout, done.stderr)

    def bylaw(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = run_bylaw([*arguments], cwd=self.path, env={**os.environ, "NO_COLOR": "1"})
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def asked(self) -> list[dict[str, str]]:
        """What `server.py` wrote down, in order."""
        log = self.path / "asked.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @contextlib.contextmanager
    def server(self, mode: str = "good") -> Iterator[str]:
        """An agent that its owner starts: Bylaw knows its address and nothing else."""
        port = free_port()
        with served([str(HERE / "server.py"), mode, str(port), str(self.path / "asked.jsonl")], port):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def served(arguments: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, *arguments])
    try:
        wait_for(port)
        yield
    finally:
        process.terminate()
        process.wait(timeout=300)


@contextlib.contextmanager
def order_service() -> Iterator[str]:
    port = free_port()
    with served([str(AGENTS / "http" / "tool_server.py"), str(port)], port):
        yield f"http://127.0.0.1:{port}"


def shop(name: str, orders: str) -> dict[str, Any]:
    """An agent of the example shop behind HTTP, started by Bylaw: its own requests pass the proxy."""
    port = free_port()
    command = [sys.executable, str(AGENTS / "http" / "agents.py"), name, str(port)]
    return {"endpoint": f"http://127.0.0.1:{port}/chat", "command": command, "env": {"SHOP_URL": orders}}


def model_agent(folder: Folder, text: str, *, asks: int = 1) -> dict[str, Any]:
    """A command that asks a scripted model, which always answers `text`."""
    (folder.path / "script.yaml").write_text(yaml.safe_dump({"replies": [{"text": text}]}))
    command = [sys.executable, str(HERE / "with_model.py"), "{prompt}"]
    return {"command": command, "upstreams": {"openai": "script.yaml"}, "env": {"ASKS": str(asks)}}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(6000):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError
