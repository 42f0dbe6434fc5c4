"""`python -m tests.docs [PAGE...]`: write the real output of the commands into the pages. Review the diff."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from tests.docs.console import Shell
from tests.docs.pages import PAGES, ROOT, blocks, lay_out
from tests.docs.python_examples import Interpreter


def renew(page: str, folder: Path) -> None:
    lay_out(folder)
    shell, python = Shell(folder), Interpreter(folder)
    lines = (ROOT / page).read_text("utf-8").splitlines(keepends=True)
    renewed: list[tuple[slice, str]] = []
    for block in blocks(page):
        if block.title is not None:
            block.write_to(shell.folder)
        elif block.language == "python":
            with contextlib.chdir(folder):
                python.run(block)
        elif block.language == "console" and block.text.startswith("$ "):
            text = "".join(command.shown_with(printed) for command, printed in shell.play(block))
            start = block.line - 1
            renewed.append((slice(start, start + block.text.count("\n")), text))
    for place, text in reversed(renewed):
        lines[place] = [text]
    (ROOT / page).write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    for page in sys.argv[1:] or PAGES:
        if (ROOT / page).is_file():
            with tempfile.TemporaryDirectory() as folder:
                renew(page, Path(folder))
