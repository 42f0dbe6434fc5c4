"""What a hook costs: `bylaw hook` for one tool call, alone and with the service, against `python -c pass`.

    python bench/hook.py [--runs N]

CPU is the user and system time of the process that the coding agent starts, wall is the time until it has ended; each
is the median over processes that alternate, so that all meet the same load. Bytecode is written beforehand. The
decisions go into one store; the rules are three.

Bias: the CPU time that the service itself spends on a call is in the wall time only.
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
import time
from contextlib import suppress
from pathlib import Path

RULES = """
guard:
  rules:
    - {id: no-force, when: {arg_regex: {path: command, pattern: 'push.*--force'}}, then: block}
    - {id: no-drop, when: {arg_contains: {path: command, value: drop table}}, then: block}
    - {id: cap, kind: max_calls, params: {tool: fetch, limit: 3}, then: block}
"""
HOOK = ("-c", "import sys; sys.argv[1:] = ['hook']; from bylaw.__main__ import main; main()")
"""as the installed command runs it"""


def run(arguments: tuple[str, ...], folder: Path, environment: dict[str, str], call_id: int) -> tuple[float, float]:
    """CPU and wall seconds of one process."""
    call = {
        "session_id": "bench",
        "cwd": str(folder),
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "git status"},
        "tool_use_id": f"t{call_id}",
    }
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, cwd=folder
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # `pass` reads nothing
        process.stdin.write(json.dumps(call).encode())
        process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bylaw.yaml").write_text(RULES)
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        plain |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "BYLAW_HOOK_SOCKET": str(folder / "none" / "s")}
        served = {**plain, "BYLAW_HOOK_SOCKET": str(folder / "run" / "s")}
        service = subprocess.Popen(
            [sys.executable, "-m", "bylaw", "hook", "serve"], env=served, stdout=subprocess.DEVNULL
        )
        try:
            while not (folder / "run" / "s").exists():
                time.sleep(0.05)
            cases = {
                "python -c pass": (("-c", "pass"), plain),
                "alone": (HOOK, plain),
                "with the service": (HOOK, served),
            }
            times: dict[str, list[tuple[float, float]]] = {case: [] for case in cases}
            for number in range(-2, runs):
                for place, (case, (arguments, environment)) in enumerate(cases.items()):
                    cost = run(arguments, folder, environment, 10 * number + place)
                    if number >= 0:  # the first ones write bytecode, and load the service
                        times[case].append(cost)
        finally:
            service.terminate()
            service.wait()
    base = [statistics.median(cost) for cost in zip(*times["python -c pass"], strict=True)]
    print(f"Python {platform.python_version()}, {runs} runs, {os.cpu_count()} cores")
    for case, costs in times.items():
        cpu, wall = (statistics.median(cost) for cost in zip(*costs, strict=True))
        print(f"{case:<18} {cpu * 1e3:6.1f} ms CPU ×{cpu / base[0]:4.1f}", end="   ")
        print(f"{wall * 1e3:6.1f} ms wall ×{wall / base[1]:4.1f}")


if __name__ == "__main__":
    main()
