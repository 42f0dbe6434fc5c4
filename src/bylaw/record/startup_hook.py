"""Copied as `sitecustomize.py` for the Pythons that a recorded command starts: records models that no HTTP carries.

Nothing happens until such a Python imports a framework. Then it loads Bylaw, if it has it, to record the framework's
calls (`api`); if it has not, the log says so. The file imports nothing from Bylaw and uses old syntax, so
that any Python 3.7 can run it. INVARIANT: nothing that goes wrong here reaches the program.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # every Python of the command runs this file, so it imports nothing that is not loaded anyway
if TYPE_CHECKING:
    from typing import Any

FRAMEWORKS = ("agents.models.interface", "langchain_core.language_models.chat_models", "pydantic_ai.models")
LOG = "BYLAW_RECORD_LOG"


class _Finder:
    """Starts the recording when the first framework is imported, and lets the recording's own finder find it."""

    finder: Any = None
    failed = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in FRAMEWORKS or self.failed:
            return None
        if self.finder is None:
            try:
                from bylaw.record.api import begin_part

                self.finder = begin_part()
            except BaseException as problem:
                self.failed = True
                _note("unable {} {!r}".format(name.partition(".")[0], str(problem)[:200]))
                return None
            return self.finder.find_spec(name, path, target)  # it is too late for it to be asked by the import itself
        return None


def _note(text: str) -> None:
    try:
        with open(os.environ[LOG], "a") as log:
            log.write(text + "\n")
    except Exception:
        sys.stderr.write("bylaw: models of frameworks in this process are not recorded\n")


def _run_shadowed() -> None:
    """Run the `sitecustomize` that would have run without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as problem:
        if problem.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


if __name__ == "sitecustomize" and os.environ.get(LOG):
    sys.meta_path.insert(0, _Finder())
    _run_shadowed()
