"""The demo: what Bylaw is for, in under a minute of reading. Runs offline; every line it prints is real output.

It writes the example as `bylaw demo` does, and runs the commands that `bylaw demo` suggests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from bylaw.demo import STEPS


def main() -> int:
    colour = "--color" if sys.stdout.isatty() else "--no-color"
    with tempfile.TemporaryDirectory() as folder:
        run_bylaw("demo", folder, folder=folder, stdout=subprocess.DEVNULL)
        for number, step in enumerate(STEPS, 1):
            print(f"\n{number}. {step.story}\n\n$ {step.command_line}", flush=True)
            code = run_bylaw(*step.arguments.split(), colour, folder=folder, stdin=step.stdin)
            print(f"(exit code {code})")
            if code != step.exit_code:
                print(f"the demo expected exit code {step.exit_code}", file=sys.stderr)
                return 1
    print("\n`bylaw demo` writes these files into a folder. Next: bylaw check YOUR-TRACES --policy YOUR-RULES")
    return 0


def run_bylaw(*arguments: str, folder: str, stdin: str = "", stdout: int | None = None) -> int:
    command = [sys.executable, "-m", "bylaw", *arguments]
    done = subprocess.run(
        command, cwd=folder, input=stdin.encode(), stdout=stdout, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
