"""`python -m tests.fuzz --inputs 200000`: the figures at the end, the first failing input kept on disk."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path

from tests.fuzz.run import Outcome, run_share
from tests.support.processes import end_with_parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    share = max(1, min(1000, options.inputs // (os.cpu_count() or 1)))
    shares = [(options.seed, first, min(share, options.inputs - first)) for first in range(0, options.inputs, share)]
    started = time.monotonic()
    total = Outcome()
    with multiprocessing.get_context("spawn").Pool(initializer=end_with_parent) as pool:
        for outcome in pool.imap_unordered(run_share, shares):
            total.add(outcome)
            if sys.stderr.isatty():
                print(f"\r{total.inputs:,} of {options.inputs:,}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    seconds = time.monotonic() - started
    print(f"{total.inputs:,} inputs in {seconds:.0f} s: {total.accepted:,} read, {total.refused:,} refused")
    print(f"{len(total.failures)} uncaught exceptions or hangs; slowest input {total.slowest:.2f} s")
    for name, data, problem in total.failures[:20]:
        path = Path(f"fuzz-failure-{name}")
        path.write_bytes(data)
        print(f"  {path}: {problem}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
