"""Runs the Python blocks of a page as a reader would: from top to bottom, in one interpreter.

A block that starts with `>>>` is a session whose output is compared. Any other block is a part of a script, which uses
`assert` to state its results.
"""

from __future__ import annotations

import doctest
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.docs.pages import Block

_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Interpreter:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, Any] = {}

    def run(self, block: Block) -> None:
        if block.text.startswith(">>>"):
            self._run_session(block)
        else:
            self._run_script(block)

    def _run_session(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, self._names, block.where, block.page, block.line - 1)
        printed: list[str] = []
        failed = doctest.DocTestRunner(optionflags=_OPTIONS).run(test, out=printed.append, clear_globs=False).failed
        self._names = test.globs
        assert not failed, "".join(printed)

    def _run_script(self, block: Block) -> None:
        """Write the block to a file at its line of the page, so that a traceback shows the right line."""
        script = self._folder / "block.py"
        script.write_text("\n" * (block.line - 1) + block.text, "utf-8")
        with self._importable():
            names = runpy.run_path(str(script), init_globals=self._names, run_name=block.where)
        self._names = {name: value for name, value in names.items() if not name.startswith("__")}

    @contextmanager
    def _importable(self) -> Iterator[None]:
        """Make the files of the page importable; forget them afterwards, because the next page has other files."""
        before = set(sys.modules)
        sys.path.insert(0, str(self._folder))
        try:
            yield
        finally:
            sys.path.remove(str(self._folder))
            for name in set(sys.modules) - before:
                file = getattr(sys.modules[name], "__file__", None)
                if file is not None and Path(file).parent == self._folder:
                    del sys.modules[name]
