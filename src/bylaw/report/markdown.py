"""Text inside Markdown: escaped, or as inline code."""

from __future__ import annotations

LIMIT = 65_536
"""characters that a comment on a pull request may have"""


def code(text: str) -> str:
    """Inline code that no back-tick inside can end."""
    flat = "".join(c if c.isprintable() else " " for c in text)
    longest = max((len(run) for run in "".join(c if c == "`" else " " for c in flat).split()), default=0)
    fence = "`" * (longest + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


_SPECIAL = str.maketrans({**{c: f"\\{c}" for c in "\\`*_[]#|~"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"})


def escape(text: str) -> str:
    """Text out of a trace must not become markup, a link or a mention; back-ticks are shown, not obeyed."""
    return "".join(c if c.isprintable() else " " for c in text).translate(_SPECIAL)
