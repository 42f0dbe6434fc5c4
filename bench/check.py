"""`make bench`: what reading and checking cost beside bare JSON decoding of the same bytes.

Every figure is CPU time of a process of its own, the best of a few runs; sizes from 1,000 to 1,000,000 turns.
Bias: the traces are our own synthetic ones, chosen before the engine was tuned; they violate few rules, and reporting
a violation costs more than passing. The yardstick decodes and throws away; it builds no events.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

TAU = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "tau-airline" / "gpt-4o-airline.json.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=1_000_000, help="largest number of turns")
    parser.add_argument("--measure", nargs=3, metavar=("WHAT", "SCOPE", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= options.most]
        bench_sizes(Path(folder), sizes)
        bench_rule_count(Path(folder), min(options.most, 100_000))
        bench_tau(Path(folder))


def print_machine() -> None:
    packages = ", ".join(f"{name} {version(name)}" for name in ("msgspec", "orjson", "google-re2", "jsonschema-rs"))
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}")
    print(f"load average {os.getloadavg()[0]:.1f}; CPU time, best of several runs\n")


def bench_sizes(folder: Path, sizes: list[int]) -> None:
    from synthetic import write_agentlog

    print(f"{'turns':>9} {'scope':8} {'what':14} {'us/turn':>8} {'turns/s':>9} {'x orjson':>9} {'peak MB':>8}")
    for size in sizes:
        path = folder / f"{size}.agentlog"
        write_agentlog(path, size)
        runs = 5 if size < 100_000 else 3 if size < 1_000_000 else 1
        bare = best("orjson", "-", path, runs)
        show(size, "-", "bare orjson", bare, bare)
        show(size, "-", "read only", best("read", "-", path, runs), bare)
        for scope in ("trace", "session"):
            for what in ("eleven", "twelve"):
                show(size, scope, f"{what} rules", best(what, scope, path, runs), bare)
        path.unlink()


def bench_rule_count(folder: Path, size: int) -> None:
    from synthetic import write_agentlog

    path = folder / "rules.agentlog"
    write_agentlog(path, size)
    read = best("read", "-", path, 3)
    print(f"\n{size:,} turns, rules about tools: 10, and the same 10 with 990 about other tools")
    for scope in ("trace", "session"):
        ten, thousand = (best(what, scope, path, 3) for what in ("ten", "thousand"))
        whole = thousand["cpu"] / ten["cpu"]
        engine = (thousand["cpu"] - read["cpu"]) / (ten["cpu"] - read["cpu"])
        print(f"  {scope:8} 1,000 rules cost {whole:.2f}x of ten ({engine:.2f}x without the reading)")


def bench_tau(folder: Path) -> None:
    if not TAU.exists():
        print("\ntau-airline: skipped, the data folder is not here")
        return
    dialogues = json.loads(gzip.decompress(TAU.read_bytes()))
    path = folder / "tau.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for repeat in range(10):
            for dialogue in dialogues:
                out.write(json.dumps({**dialogue, "task_id": f"{dialogue['task_id']}.{repeat}"}) + "\n")
    bare = best("orjson", "-", path, 3)
    turns = sum(m["role"] == "assistant" for d in dialogues for m in d["traj"]) * 10
    print(f"\ntau-airline, 200 real dialogues repeated ten times: {turns:,} turns")
    for what in ("read", "eleven", "twelve"):
        show(turns, "session", what, best(what, "session", path, 3), bare)


def show(turns: int, scope: str, what: str, figure: dict[str, Any], bare: dict[str, Any]) -> None:
    micro = figure["cpu"] / turns * 1e6
    ratio = figure["cpu"] / bare["cpu"]
    print(f"{turns:9,} {scope:8} {what:14} {micro:8.2f} {1e6 / micro:9,.0f} {ratio:9.2f} {figure['peak']:8.0f}")


def best(what: str, scope: str, path: Path, runs: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", what, scope, str(path)]
    outputs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(runs)]
    return min((json.loads(output) for output in outputs), key=lambda figure: float(figure["cpu"]))


def measure(what: str, scope: str, file: str) -> dict[str, float]:
    """In a process of its own: imports and compilation are done before the clock starts, with one small trace read."""
    if what != "orjson":
        warm_up(file)
    run = prepare(what, scope, file)
    started = time.process_time()
    run()
    spent = time.process_time() - started
    return {"cpu": spent, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def warm_up(file: str) -> None:
    from bylaw.traces import open_trace

    with tempfile.NamedTemporaryFile(suffix=Path(file).suffix) as small, open(file, "rb") as lines:
        small.writelines(line for line, _ in zip(lines, range(9), strict=False))
        small.flush()
        sum(1 for _ in open_trace(small.name))


def prepare(what: str, scope: str, file: str) -> Any:
    if what == "orjson":
        import orjson

        def decode() -> None:
            with open(file, "rb") as lines:
                for line in lines:
                    orjson.loads(line)

        return decode
    from bylaw.traces import open_trace

    if what == "read":
        return lambda: sum(1 for _ in open_trace(file))
    from rules import rule_set

    from bylaw.check.api import Check
    from bylaw.rules import load_rules

    job = Check(load_rules(rule_set(what, scope)).rules)
    return lambda: job.add(open_trace(file))


if __name__ == "__main__":
    main()
