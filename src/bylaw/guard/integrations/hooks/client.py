"""The process that a coding agent starts for each event: asks a service if one listens, else decides by itself.

Most of a run without a service is imports, so nothing is imported before it is needed, and the process neither collects
garbage nor takes its modules apart when it ends.
"""

from __future__ import annotations

import gc
import os
import sys

from bylaw.guard.integrations.hooks.connection import BLOCK, MOST_BYTES, OPTIONS, ask_service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(arguments: Sequence[str]) -> None:
    """Run the hook and exit. Returns if these are not the arguments of a plain hook."""
    options = _plain_options(arguments)
    if options is not None:
        gc.disable()
        _exit(run(options))


def _exit(code: int) -> None:
    """Exit at once. What was not printed counts as not answered."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except Exception:
        code = BLOCK
    os._exit(code)


def run(options: Mapping[str, str]) -> int:
    """One event, from stdin to stdout. Whatever goes wrong, the exit code is 2."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            if sys.stderr is not None:  # `print` would take stdout, which the client reads
                what = "stdin is closed" if sys.stdin is None else "a coding agent runs this, with an event on stdin"
                print(f"bylaw: the call is not allowed: {what}; see `bylaw hook --help`", file=sys.stderr)
            return BLOCK
        payload = sys.stdin.buffer.read(MOST_BYTES + 1)
        out, errors, code = ask_service(payload, options) or _decide(payload, options)
        if errors and sys.stderr is not None:
            print(errors, file=sys.stderr)
        if out:
            print(out, flush=True)  # without stdout the answer is lost, and with it a question to a person
            return code if sys.stdout is not None else BLOCK
    except KeyboardInterrupt:
        return BLOCK
    except Exception as problem:
        if sys.stderr is not None:
            print(f"bylaw: the call is not allowed: {type(problem).__name__}: {problem}", file=sys.stderr)
        return BLOCK
    return code


def _decide(payload: bytes, options: Mapping[str, str]) -> tuple[str, str, int]:
    from bylaw.guard.integrations.hooks.run import HookOptions, run_hook

    answer = run_hook(payload, HookOptions(folder=os.getcwd(), **options))  # type: ignore[arg-type]
    return answer.stdout, answer.stderr, answer.code


def _plain_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """`--NAME VALUE` pairs only; everything else, such as a command or `--help`, is left to click."""
    if len(arguments) % 2:
        return None
    options: dict[str, str] = {}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        key = "policy" if name == "-p" else name.removeprefix("--")
        if key not in OPTIONS or not name.startswith("-") or value.startswith("-"):
            return None
        options[key] = value
    if options.get("client", "codex") not in ("claude-code", "codex", "gemini", "cursor", "copilot"):
        return None
    return options
