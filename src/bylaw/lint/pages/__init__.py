"""One Markdown page for each code a diagnostic can have: what it means, a wrong example, the right one, and why."""

from __future__ import annotations

import re
from importlib import resources

_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def read_page(code: str) -> str | None:
    """The page for a code, or None where there is no such code."""
    if not _CODE.fullmatch(code):
        return None
    page = resources.files(__name__).joinpath(f"{code}.md")
    return page.read_text("utf-8") if page.is_file() else None


def codes() -> tuple[str, ...]:
    """Every code that has a page, sorted."""
    names = (page.name for page in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))
