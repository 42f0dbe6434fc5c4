"""The demo: what Bylaw is for, in under a minute of reading. Runs offline; every line it prints is real output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "examples" / "refund"

ATTEMPT = '{"tool": "issue_refund", "arguments": {"order_id": "A-23", "amount": 199}}'

STEPS = [
    ("Version 1 of a refund agent, three recorded conversations, five rules.", "check v1.jsonl --policy bylaw.yaml", 0),
    ("Version 2 has a friendlier prompt. Somewhere it lost a step.", "check v2.jsonl --policy bylaw.yaml", 1),
    ("Where did they part? Both, side by side.", "inspect v1.jsonl v2.jsonl --session ticket-1043", 0),
    ("The same two versions compared: what changed, and what it broke.", "diff v1.jsonl v2.jsonl -p bylaw.yaml", 1),
    ("The same rule, asked before the call runs: it is blocked.", "guard decide --policy guard.yaml", 1),
    ("A typo in a rule is never a rule that silently passes.", "lint typo.yaml", 2),
]


def main() -> int:
    colour = "--color" if sys.stdout.isatty() else "--no-color"
    for number, (story, command, wanted) in enumerate(STEPS, 1):
        given = ATTEMPT if command.startswith("guard") else ""
        typed = f"echo '{given}' | bylaw {command}" if given else f"bylaw {command}"
        print(f"\n{number}. {story}\n\n$ {typed}", flush=True)
        arguments = [sys.executable, "-m", "bylaw", colour, *command.split()]
        done = subprocess.run(arguments, cwd=FOLDER, input=given.encode(), stderr=subprocess.STDOUT, check=False)
        code = done.returncode
        print(f"(exit code {code})")
        if code != wanted:
            print(f"the demo expected exit code {wanted}", file=sys.stderr)
            return 1
    print("\nThe rules: examples/refund/bylaw.yaml and guard.yaml. Next: bylaw check YOUR-TRACES --policy YOUR-RULES")
    return 0


if __name__ == "__main__":
    sys.exit(main())
