"""Start-up: `bylaw check` on a ten-line trace against importing the libraries it uses.

    python bench/startup.py [--runs N]

Each figure is the median over separate processes, which alternate, so that both meet the same load. CPU is the user and
system time of a process, from its resource usage. Modules are counted in `sys.modules` when the process ends.

Bias: the baseline is a bare `import` of the libraries; it reads no file and does no work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

LIBRARIES = ("click", "msgspec", "re2", "yaml")
"""third-party packages that `bylaw check` imports"""

_COUNT = "import sys; print(sorted(sys.modules), file=sys.stderr)"
IMPORT_LIBRARIES = f"import {', '.join(LIBRARIES)}; {_COUNT}"
CHECK = f"""
import sys
from bylaw.cli import main
try:
    main(["check", "trace.jsonl", "--policy", "rules.yaml"])
finally:
    {_COUNT}
"""

RULES = """
rules:
  - {id: confirm-first, kind: must_call_before, params: {first: confirm, second: refund}}
  - {id: no-delete, kind: no_call, params: {tool: delete}}
  - {id: short, kind: max_turns, params: {n: 50}}
"""


class Cost(NamedTuple):
    cpu: float
    """seconds"""
    modules: frozenset[str]


def write_example(folder: Path) -> None:
    """A trace of ten lines, and three rules."""
    line = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for _ in range(10)))
    (folder / "rules.yaml").write_text(RULES)


def run(script: str, folder: Path) -> Cost:
    """Run a script in a process of its own and return what it cost."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", script], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        printed = errors.read().decode()
    if process.returncode != 0:
        raise RuntimeError(printed)
    modules = frozenset(json.loads(printed.strip().splitlines()[-1].replace("'", '"')))
    return Cost(usage.ru_utime + usage.ru_stime, modules)


def measure(runs: int) -> tuple[list[Cost], list[Cost]]:
    """Costs of importing the libraries, and of the check, measured in turn."""
    libraries, checks = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_example(folder)
        run(CHECK, folder)  # writes the bytecode, so that no later run compiles
        for _ in range(runs):
            libraries.append(run(IMPORT_LIBRARIES, folder))
            checks.append(run(CHECK, folder))
    return libraries, checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    libraries, checks = measure(parser.parse_args().runs)
    base, check = (statistics.median(cost.cpu for cost in costs) for costs in (libraries, checks))
    modules = checks[-1].modules
    ours = sum(name.split(".")[0] == "bylaw" for name in modules)
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, {len(checks)} runs")
    print(f"import {', '.join(LIBRARIES)}: {base * 1000:.0f} ms of CPU, {len(libraries[-1].modules)} modules")
    print(f"bylaw check: {check * 1000:.0f} ms of CPU, {len(modules)} modules, {ours} of them Bylaw's")
    print(f"ratio: {check / base:.2f}")


if __name__ == "__main__":
    main()
