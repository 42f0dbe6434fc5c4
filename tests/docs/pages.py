"""The fenced blocks of a Markdown page, in order, each with its place."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "src" / "bylaw" / "demo" / "files"
TUTORIAL = "docs/tutorial.md"
PYTHON = "docs/reference/python.md"
DIFF = "docs/reference/diff.md"
TEMPORAL = "docs/temporal.md"
GUARD = "docs/guard.md"
GUARD_REFERENCE = "docs/reference/guard.md"
CONTRACT = "docs/contract.md"
CONTRACT_FILE = "docs/reference/contract-file.md"
BACKTEST = "docs/backtest.md"
AUDIT = "docs/audit.md"
INCIDENTS = "docs/incidents.md"
INCIDENTS_REFERENCE = "docs/reference/incidents.md"
COMPLY = "docs/comply.md"
COMPLY_REFERENCE = "docs/reference/comply.md"
INSPECT = "docs/inspect.md"
RECORD = "docs/record.md"
CONVERT = "docs/convert.md"
PAGES = (
    *("README.md", "docs/index.md", TUTORIAL, TEMPORAL, GUARD, BACKTEST, AUDIT, INCIDENTS, CONTRACT, COMPLY),
    *(PYTHON, DIFF, GUARD_REFERENCE, INCIDENTS_REFERENCE, CONTRACT_FILE, COMPLY_REFERENCE, INSPECT, RECORD, CONVERT),
)
"""pages whose commands and scripts are run, each from top to bottom in a folder of its own"""

_FENCE = re.compile(r"(?P<margin> *)(?P<fence>`{3,})(?P<language>[\w-]*)(?P<rest>.*)")
_TITLE = re.compile(r'title="([^"]+)"')
_HEADING = re.compile(r"#+ (.+)")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    """of the block's first line"""
    heading: str
    """the nearest heading above"""
    language: str
    title: str | None
    """the file that the block shows, where it says so"""
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def write_to(self, folder: Path) -> None:
        assert self.title is not None
        (folder / self.title).write_text(self.text, "utf-8")


def blocks(page: str, *languages: str) -> list[Block]:
    """The blocks of a page, given relative to the project; none where there is no such page yet."""
    path = ROOT / page
    if not path.is_file():
        return []
    return [block for block in _read(page, path.read_text("utf-8")) if not languages or block.language in languages]


def lay_out(folder: Path) -> None:
    """Put the files of `bylaw demo` into a folder."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _read(page: str, text: str) -> Iterator[Block]:
    heading, lines = "", enumerate(text.splitlines(), 1)
    for number, line in lines:
        opened = _FENCE.fullmatch(line)
        if opened is None:
            found = _HEADING.fullmatch(line)
            heading = found[1] if found else heading
            continue
        body = []
        for _, inner in lines:
            if inner.strip() == opened["fence"]:
                break
            body.append(inner.removeprefix(opened["margin"]))
        title = _TITLE.search(opened["rest"])
        yield Block(page, number + 1, heading, opened["language"], title and title[1], "\n".join(body) + "\n")
