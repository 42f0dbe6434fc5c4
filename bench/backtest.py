"""Part of `make bench`: what a backtest and the mining of proposals cost, beside bare JSON decoding of the same bytes.

Every figure is CPU time of a process of its own. With the real dialogues beside this checkout, also how well proposals
mined from the clean dialogues of half of the models do on the other half, and the strongest of them.

Bias: the synthetic traces are our own, with a tool call in every third turn and few breaches; the yardstick decodes and
throws away. The ten rules speak of every tool in the traces. SOPBench's dialogues are short, of few users, and their
prompts differ in rules and numbers, which a set of rules for all of them cannot follow.

    python bench/backtest.py [--most TURNS] [--data FOLDER] [--top N]
"""

from __future__ import annotations

import argparse
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

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]
DATA = ROOT.parent / "shared" / "data"

TEN_MILLION_EVENTS = 4_300_000
"""turns, of which every third has a call"""

RULES = [
    {"id": "large", "when": {"tool_name_in": ["issue_refund"], "arg_gt": {"path": "amount", "value": 500}}},
    {"id": "no-order", "when": {"tool_name_in": ["lookup_order", "issue_refund"], "arg_missing": "order_id"}},
    {"id": "odd-order", "when": {"not": {"arg_regex": {"path": "order_id", "pattern": "^A-"}}}},
    {"id": "often", "when": {"call_count_in_session_gt": {"tool": "send_email", "value": 3}}},
    {"id": "many", "when": {"call_count_in_run_gt": {"value": 50}}},
    {"id": "confirmed", "params": {"before": "issue_refund", "require": "confirm_refund_amount"}},
    {"id": "thrice", "params": {"at_most": 3, "of": "issue_refund"}},
    {"id": "looked-up", "params": {"never": "issue_refund", "unless": "lookup_order"}},
    {"id": "same-amount", "params": {"never": "send_email", "unless": "confirm_refund_amount", "same": "amount"}},
    {"id": "burst", "inline": True, "when": {"call_count_in_window_gt": {"value": 40, "windowSeconds": 60}}},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--most", type=int, default=100_000, help="largest number of turns")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--top", type=int, default=10, help="proposals that are shown")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    packages = ", ".join(f"{name} {version(name)}" for name in ("msgspec", "orjson"))
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}")
    print(f"load average {os.getloadavg()[0]:.1f}; CPU time\n")
    bench_speed([size for size in (10_000, 100_000, 1_000_000, TEN_MILLION_EVENTS) if size <= options.most])
    if (options.data / "sopbench").is_dir():
        score_proposals(options.data, options.top)
    else:
        print("\nSOPBench: skipped, the data folder is not here")


# -- speed and memory -------------------------------------------------------------------------------------------------


def bench_speed(sizes: list[int]) -> None:
    from synthetic import write_agentlog

    print(f"{'turns':>9} {'what':22} {'events':>10} {'us/event':>9} {'events/s':>10} {'x orjson':>9} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.agentlog"
            write_agentlog(path, size)
            rows = {what: best(what, path, 3 if size <= 100_000 else 1) for what in WORK}
            events = rows["read only"]["events"]
            for what, row in rows.items():
                each, bare = row["cpu"] / events, rows["bare orjson"]["cpu"]
                figures = f"{each * 1e6:>9.2f} {1 / each:>10,.0f} {row['cpu'] / bare:>9.1f} {row['peak']:>8.0f}"
                print(f"{size:>9,} {what:22} {events:>10,.0f} {figures}")
            path.unlink()


def best(what: str, path: Path, runs: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", what, str(path)]
    done = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(runs)]
    rows: list[dict[str, float]] = [json.loads(one) for one in done]
    return min(rows, key=lambda row: row["cpu"])


def measure(what: str, file: str) -> dict[str, float]:
    started = time.process_time()
    events = WORK[what](Path(file))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return {"cpu": time.process_time() - started, "peak": peak, "events": events}


def decode(path: Path) -> int:
    import orjson

    with path.open("rb") as file:
        return sum(1 for line in file if orjson.loads(line) is not None)


def read(path: Path) -> int:
    import bylaw

    return sum(1 for _ in bylaw.open_trace(path))


def backtest(path: Path, *, against: bool = False) -> int:
    import bylaw

    return bylaw.backtest(rules(), path, against=rules()[1:] if against else None).events


def propose(path: Path) -> int:
    import bylaw

    return bylaw.propose(path).calls


def rules() -> list[dict[str, Any]]:
    kind = {"kind": "temporal", "scope": "session"}
    return [{"then": "block", **rule, **(kind if "params" in rule else {})} for rule in RULES]


WORK = {
    "bare orjson": decode,
    "read only": read,
    "backtest, ten rules": backtest,
    "… against nine others": lambda path: backtest(path, against=True),
    "propose": propose,
}


# -- proposals against labels -----------------------------------------------------------------------------------------


def score_proposals(data: Path, top: int) -> None:
    import yaml

    import bylaw
    from tests.corpus.test_guard import RULES as BY_HAND
    from tests.corpus.test_guard import Bank
    from tests.support.sopbench import as_trace, halves, score

    bank = Bank(data)
    split = halves(bank)
    print(
        f"\nSOPBench bank, {len(bank.dialogues):,} dialogues: rules from clean ones of half of the models, on the rest"
    )
    for half, (mined, other) in enumerate((split, split[::-1]), 1):
        clean = as_trace(dialogue for dialogue in mined if dialogue.is_clean)
        for support in (5, 10, 20):
            report = bylaw.propose(clean, min_support=support)
            found = score([one.rule for one in report.proposals], other)
            print(f"  half {half}, --min-support {support:2}: {len(report.proposals)} rules\n    {found}")
        by_hand = score(yaml.safe_load(BY_HAND.read_text()), other)
        print(f"  half {half}, written by hand from the fullest prompt\n    {by_hand}")
    clean = as_trace(dialogue for dialogue in split[0] if dialogue.is_clean)
    print(f"\nthe {top} strongest of half 1, --min-support 10")
    for number, one in enumerate(bylaw.propose(clean).proposals[:top], 1):
        apart = f"kept apart: {one.false_stops} of {one.held_out_calls} stopped"
        print(f"{number:3}. {one.strength:.2f} {one.says} ({one.calls} calls, {one.sessions} sessions; {apart})")


if __name__ == "__main__":
    main()
