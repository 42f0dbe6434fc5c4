"""`call_count_…` of a guard rule: more attempts than so many, this one included."""

from __future__ import annotations

from typing import Literal, cast, get_args

from bylaw.model.predicate import CountOver, Reach
from bylaw.rules.located import MapNode, Node, ScalarNode
from bylaw.rules.messages import quote, synonyms
from bylaw.rules.readers import Fields, read_choice, read_count, read_number, read_text, report_wrong_type
from bylaw.rules.source import Problems

OVER: dict[str, Literal["run", "session", "window"]] = {
    "call_count_in_run_gt": "run",
    "call_count_in_session_gt": "session",
    "call_count_in_window_gt": "window",
}
SECONDS = ("windowSeconds", "window_seconds")
REACHES: tuple[Reach, ...] = get_args(Reach)

_COUNTER_SYNONYMS = synonyms({"tool": "tool_name tools name", "value": "count max limit threshold"})
_WINDOW_SYNONYMS = synonyms({"windowSeconds": "window seconds within", "over": "across scope reach"})
_REACH_SYNONYMS = synonyms({"all": "workspace every everyone global agents", "session": "conversation run"})


def read_counter(key: str, node: Node, problems: Problems) -> CountOver | None:
    window = OVER[key] == "window"
    if not isinstance(node, MapNode):
        number = isinstance(node, ScalarNode) and isinstance(node.value, int) and not isinstance(node.value, bool)
        written = f"{{value: {node.raw if number else '…'}{', windowSeconds: …' if window else ''}}}"
        report_wrong_type(node, quote(key), "a mapping", problems, help=f"write it as `{key}: {written}`")
        return None
    fields = Fields(node, problems, what=quote(key))
    tool_node = fields.take("tool")
    value_node = fields.require("value", help="`value` is how many attempts are not yet too many")
    entry = fields.take_one_of(SECONDS) if window else None
    if window and entry is None:
        fields.missing(SECONDS[:1], help="`windowSeconds` is how far the window reaches back, such as `300`")
    reach_node = fields.take("over") if window else None
    fields.finish(synonyms=_COUNTER_SYNONYMS | (_WINDOW_SYNONYMS if window else {}))
    tool = read_text(tool_node, "tool", problems) if tool_node else None
    value = read_count(value_node, "value", problems) if value_node else None
    wanted = "a number of seconds above 0"
    single = entry is not None and fields.has_one_of(SECONDS)
    seconds = read_number(entry.value, "windowSeconds", wanted, problems, above=0) if entry and single else None
    reach = _read_reach(reach_node, problems) if reach_node else "session"
    unusable = (tool_node and tool is None) or (window and seconds is None)
    if value is None or reach is None or unusable:
        return None
    return CountOver(OVER[key], value, tool, seconds and float(seconds), reach)


def _read_reach(node: Node, problems: Problems) -> Reach | None:
    text = read_choice(
        node,
        "over",
        REACHES,
        problems,
        code="unknown-reach",
        message="a window does not reach over {}",
        synonyms=_REACH_SYNONYMS,
    )
    return cast(Reach | None, text)
