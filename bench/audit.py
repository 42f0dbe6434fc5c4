"""`make bench`, fifth part: rows that `bylaw guard audit verify` gets through in a second, and the memory that takes.

Wall time, each figure in a process of its own, on a file that the guard has written: four rules (an argument, an order,
a counter, a window), a hundred sessions at once, each call with its result, one in ten with a secret in it. The
yardstick reads the same rows from the file and decodes their JSON. Bias: arguments are flat and short, and 10,000
sessions at most are kept in memory, which these are not.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent))

from check import print_machine
from guard import CALLS, FOUR

SIZES = (10_000, 100_000)
RULES = {"guard": {"rules": FOUR}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=SIZES)
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    print_machine()
    print(f"{'rows':>10} {'':12} {'rows/s':>10} {'peak MB':>8}")
    for size in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "guard.db"
            write(path, size)
            for way in ("read", "verify"):
                command = [sys.executable, __file__, "--measure", way, str(path)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                figure = json.loads(done.stdout)
                print(f"{figure['rows']:10,} {way:12} {figure['rows'] / figure['seconds']:10,.0f} {figure['mb']:8,.0f}")


def write(path: Path, rows: int) -> None:
    import bylaw

    guard = bylaw.Guard(RULES, store=path)
    for i in range(rows // 2):
        tool, arguments = CALLS[i // 100 % len(CALLS)]
        if i % 10 == 0:
            arguments = {**arguments, "api_key": "sk-live-0123456789abcdef"}
        session = f"session-{i % 100}-{i // 10_000}"
        guard.record(guard.decide(bylaw.Attempt(tool=tool, arguments=arguments, session=session, ts=1e9 + i)), "done")
    guard.store.close()


def measure(way: str, path: str) -> dict[str, float]:
    import bylaw
    from bylaw.guard.stores import SqliteStore, audit_rows

    started = perf_counter()
    if way == "read":
        rows = sum(1 for _ in audit_rows(SqliteStore(path)))
    else:
        report = bylaw.verify_audit(path, RULES)
        assert report.exit_code == 0, report
        rows = report.rows
    spent = perf_counter() - started
    return {"rows": rows, "seconds": spent, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    main()
