"""The README for a package index, where a link to `docs/tutorial.md` leads nowhere.

A build hook of hatchling, named in pyproject.toml. If `[project.urls]` has a `Repository`, links lead into it and the
picture is loaded from it; if not, each link becomes its text and the path of the file, and the picture is left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[([^\]]*)\]\((?!https?:)([^)]*)\)\n\n?", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)]*)\)")


def without_relative_links(markdown: str, repository: str | None = None) -> str:
    if repository is None:
        return LINK.sub(r"\1 (`\2`)", PICTURE.sub("", markdown))
    base = repository.rstrip("/")
    linked = LINK.sub(rf"[\1]({base}/blob/main/\2)", markdown)
    return PICTURE.sub(rf"![\1]({base}/raw/main/\2)\n\n", linked)


class IndexReadme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_relative_links(text, repository)}
