"""`make bench`, second part: the diff of two long traces, one session each, 300-character replies, in memory.

Two of a hundred turns are reworded, one in a hundred is lost, one in two hundred swaps its tool. Bias: the pairs mostly
agree, as two versions of one agent do; stretches of hundreds of turns without one equal turn are cut, not searched.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    print(f"{'turns':>9} {'seconds':>8} {'us/turn':>8} {'peak MB':>8}   diff of two traces, 300-character replies")
    for turns in (size for size in (1_000, 10_000, 100_000) if size <= options.most):
        command = [sys.executable, __file__, "--measure", str(turns)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{turns:9,} {found['cpu']:8.2f} {found['cpu'] / turns * 1e6:8.1f} {found['peak']:8.0f}")


def measure(turns: int) -> dict[str, float]:
    from bylaw.diff.api import compare_versions

    baseline, candidate = pair(turns)
    started = time.process_time()
    report = compare_versions([baseline], [candidate])
    spent = time.process_time() - started
    assert report.divergence_count > 0
    return {"cpu": spent, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def pair(turns: int) -> tuple[Any, Any]:
    from synthetic import WORDS

    from tests.support.build import trace

    rng = random.Random(turns)
    baseline = [_turn(i, rng, WORDS) for i in range(turns)]
    candidate = []
    for turn in baseline:
        chance = rng.random()
        if chance < 0.01:
            continue
        if chance < 0.03:
            turn = {**turn, "text": " ".join(rng.choices(WORDS, k=45))}
        elif chance < 0.035:
            turn = {**turn, "calls": ["other_tool"]}
        candidate.append(turn)
    return trace(baseline, name="baseline"), trace(candidate, name="candidate")


def _turn(i: int, rng: random.Random, words: list[str]) -> dict[str, Any]:
    calls = [{"name": rng.choice(["lookup", "search", "pay"]), "args": {"id": i}}] if i % 2 else []
    return {
        "text": " ".join(rng.choices(words, k=45)),
        "calls": calls,
        "tokens": [100, 50],
        "latency": rng.gauss(300, 30),
    }


if __name__ == "__main__":
    main()
