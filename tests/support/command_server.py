"""Runs `bylaw` commands for tests: one process that has imported what commands need forks once for each command.

A command runs in a process of its own, with real streams, signals and exit code, and without the half second that a
fresh interpreter needs for its imports. One JSON line a command comes in, two lines go out: the process id, then the
exit code. Tests of start-up, of imports and of broken environments start a real interpreter instead.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import sys
import threading
import traceback
from typing import Any, TextIO

_ADAPTERS = ("bylaw.contract.frameworks", "bylaw.guard.integrations")


def main() -> None:
    _import_commands()
    gc.freeze()  # a command that searched for garbage among the imported modules would copy their memory
    orders, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    _point(0, os.devnull, os.O_RDONLY)
    _point(1, os.devnull, os.O_WRONLY)
    for line in orders:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            orders.close()
            answers.close()
            _run(order)
        _answer(answers, child)
        _, status = os.waitpid(child, 0)
        _answer(answers, os.waitstatus_to_exitcode(status))


def _import_commands() -> None:
    """All modules of Bylaw except the adapters, whose frameworks take five times as long to import as all the rest, and
    make each fork twice as slow. What needs an extra that is missing is imported when it is called."""
    import bylaw

    for module in pkgutil.walk_packages(bylaw.__path__, "bylaw.", onerror=lambda name: None):
        is_adapter = module.name.rpartition(".")[0] in _ADAPTERS and not module.ispkg
        if not is_adapter and not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue


def _run(order: dict[str, Any]) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        _point(0, order["stdin"], os.O_RDONLY)
        _point(1, order["stdout"], os.O_WRONLY | os.O_APPEND)
        _point(2, order["stderr"], os.O_WRONLY | os.O_APPEND)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        sys.path.insert(0, order["cwd"])
        sys.argv = ["bylaw", *order["arguments"]]
        code = _call(order["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _call(arguments: list[str]) -> int:
    from bylaw.cli import main as run

    try:
        run(arguments)
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does at its end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code


def _point(descriptor: int, path: str, flags: int) -> None:
    opened = os.open(path, flags)
    os.dup2(opened, descriptor)
    os.close(opened)


def _answer(answers: TextIO, number: int) -> None:
    answers.write(f"{number}\n")
    answers.flush()


if __name__ == "__main__":
    main()
