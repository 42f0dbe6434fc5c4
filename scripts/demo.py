"""The demo: what Bylaw is for, in under a minute of reading. Runs offline; every line it prints is real output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "examples" / "refund"

STEPS = [
    ("Version 1 of a refund agent, three recorded conversations, five rules.", "check v1.jsonl --policy bylaw.yaml", 0),
    ("Version 2 has a friendlier prompt. Somewhere it lost a step.", "check v2.jsonl --policy bylaw.yaml", 1),
    ("The same two versions compared: what changed, and what it broke.", "diff v1.jsonl v2.jsonl -p bylaw.yaml", 1),
    ("A typo in a rule is never a rule that silently passes.", "lint typo.yaml", 2),
]


def main() -> int:
    colour = "--color" if sys.stdout.isatty() else "--no-color"
    for number, (story, command, wanted) in enumerate(STEPS, 1):
        print(f"\n{number}. {story}\n\n$ bylaw {command}", flush=True)
        arguments = [sys.executable, "-m", "bylaw", colour, *command.split()]
        code = subprocess.run(arguments, cwd=FOLDER, stderr=subprocess.STDOUT, check=False).returncode
        print(f"(exit code {code})")
        if code != wanted:
            print(f"the demo expected exit code {wanted}", file=sys.stderr)
            return 1
    print("\nThe rules: examples/refund/bylaw.yaml. Next: bylaw check YOUR-TRACES --policy YOUR-RULES")
    return 0


if __name__ == "__main__":
    sys.exit(main())
