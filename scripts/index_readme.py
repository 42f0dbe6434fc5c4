"""The README for a package index: without links and pictures that exist only in a checkout.

A build hook of hatchling, named in pyproject.toml. An index shows the README far away from the repository, so a link
to `docs/tutorial.md` leads nowhere there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)]*)\)")


def without_relative_links(markdown: str) -> str:
    """Each link becomes its text and the path of the file, each picture is left out."""
    return LINK.sub(r"\1 (`\2`)", PICTURE.sub("", markdown))


class IndexReadme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_relative_links(text)}
