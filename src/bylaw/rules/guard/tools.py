"""The allowlist: names of tools, or mappings that have one under `id` or `name`."""

from __future__ import annotations

from bylaw.rules.located import ListNode, MapNode, Node
from bylaw.rules.problems import Problems
from bylaw.rules.readers import read_text, report_wrong_type
from bylaw.rules.words import quote

_NAMES = ("id", "name")
"""a rule sees the operation's id as the tool's name, so that goes first"""


def read_tools(node: Node, name: str, problems: Problems) -> tuple[str, ...] | None:
    """The names; None where any is unusable."""
    if not isinstance(node, ListNode):
        help = f"write the names of the tools in `[` and `]`, or leave {quote(name)} out to allow every tool"
        report_wrong_type(node, quote(name), "a list", problems, help=help)
        return None
    if not node.items:
        help = f"name the tools that may be called, or leave {quote(name)} out to allow every tool"
        problems.warn(code="no-tools", message=f"{quote(name)} is empty, so every call is refused", at=node, help=help)
    read = [_read_tool(item, name, problems) for item in node.items]
    good = tuple(tool for tool in read if tool is not None)
    return good if len(good) == len(read) else None


def _read_tool(node: Node, name: str, problems: Problems) -> str | None:
    if not isinstance(node, MapNode):
        return read_text(node, name, problems)
    for key in _NAMES:
        if key in node.entries:
            return read_text(node.entries[key].value, key, problems)
    problems.error(
        code="missing-key", message=f"a tool in {quote(name)} needs the key `id` or `name`", at=node.first_key
    )
    return None
