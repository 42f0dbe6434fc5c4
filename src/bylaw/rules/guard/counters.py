"""`call_count_*`: how many attempts there were, the current one included."""

from __future__ import annotations

from typing import Literal

from bylaw.model.predicate import CountOver
from bylaw.rules.fields import Fields
from bylaw.rules.located import MapNode, Node, ScalarNode
from bylaw.rules.problems import Problems
from bylaw.rules.readers import read_count, read_text, report_wrong_type
from bylaw.rules.words import quote

OVER: dict[str, Literal["run", "session", "window"]] = {
    "call_count_in_run_gt": "run",
    "call_count_in_session_gt": "session",
    "call_count_in_window_gt": "window",
}
SECONDS = ("windowSeconds", "window_seconds")

_KEY_WORDS = {
    "tool_name": "tool",
    "tools": "tool",
    "name": "tool",
    "count": "value",
    "max": "value",
    "limit": "value",
    "threshold": "value",
}
_WINDOW_WORDS = {"window": "windowSeconds", "seconds": "windowSeconds", "within": "windowSeconds"}


def read_counter(key: str, node: Node, problems: Problems) -> CountOver | None:
    if not isinstance(node, MapNode):
        report_wrong_type(node, quote(key), "a mapping", problems, help=f"write it as `{key}: {form(key, node)}`")
        return None
    fields = Fields(node, problems, what=quote(key))
    tool_node = fields.take("tool")
    value_node = fields.require("value", help="`value` is how many attempts are not yet too many")
    seconds_node = _take_seconds(fields) if OVER[key] == "window" else None
    fields.finish(synonyms=_KEY_WORDS | (_WINDOW_WORDS if OVER[key] == "window" else {}))
    tool = read_text(tool_node, "tool", problems) if tool_node else None
    value = read_count(value_node, "value", problems) if value_node else None
    seconds = _read_seconds(seconds_node, problems) if seconds_node else None
    unusable = (tool_node and tool is None) or (OVER[key] == "window" and seconds is None)
    return None if value is None or unusable else CountOver(OVER[key], value, tool, seconds)


def form(key: str, node: Node | None = None) -> str:
    """How the predicate is written."""
    number = isinstance(node, ScalarNode) and isinstance(node.value, int) and not isinstance(node.value, bool)
    value = node.raw if number and node else "…"
    return f"{{value: {value}{', windowSeconds: …' if OVER[key] == 'window' else ''}}}"


def _take_seconds(fields: Fields) -> Node | None:
    found = [entry for name in SECONDS if (entry := fields.entry(name))]
    if not found:
        fields.missing(SECONDS[:1], help="`windowSeconds` is how far the window reaches back, such as `300`")
        return None
    for extra in found[1:]:
        fields.problems.error(
            code="duplicate-parameter",
            message="`windowSeconds` and `window_seconds` give the same parameter",
            at=extra.key,
            help="keep one of them",
            related=(fields.problems.related(found[0].key, "the other one"),),
        )
    return found[0].value if len(found) == 1 else None


def _read_seconds(node: Node, problems: Problems) -> float | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        help = f"write {quote(value)}, without quotes" if isinstance(value, str) and value.isdecimal() else None
        report_wrong_type(node, "`windowSeconds`", "a number of seconds above 0", problems, help=help)
        return None
    return float(value)
