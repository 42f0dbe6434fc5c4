"""The fenced blocks of a Markdown page, in order, each with its place."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "src" / "bylaw" / "demo" / "files"
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


def _is_run(block: Block) -> bool:
    return block.language == "python" or (block.language == "console" and block.text.startswith("$ "))


ALL_PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")))
FRAMEWORKS = "docs/frameworks/"
"""pages that are run where their framework is imported anyway: tests/guard/integrations"""
PAGES = tuple(
    page for page in ALL_PAGES if not page.startswith(FRAMEWORKS) and any(_is_run(block) for block in blocks(page))
)
"""pages whose commands and scripts are run, each from top to bottom in a folder of its own"""
