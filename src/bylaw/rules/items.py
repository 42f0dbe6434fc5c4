"""One item of a list of rules: with `kind` a behaviour rule, with only `then` a guard rule."""

from __future__ import annotations

from bylaw.rules.guard.enforcement import Item
from bylaw.rules.guard.predicates import NAMES
from bylaw.rules.guard.rules import read_guard_rule
from bylaw.rules.located import ListNode, MapNode, Node
from bylaw.rules.params import Context
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.rule_fields import Ids
from bylaw.rules.rules import read_rule


def read_items(node: ListNode, context: Context, ids: Ids, *, guarding: bool = False) -> list[Item]:
    """The usable rules of a list; everything wrong with the others is reported. `guarding` asks each for `then`."""
    items = [_read_item(item, context, ids, guarding) for item in node.items]
    return [item for item in items if item is not None]


def _read_item(node: Node, context: Context, ids: Ids, guarding: bool) -> Item | None:
    if not isinstance(node, MapNode):
        help = "write it as `- id: …` with its keys below"
        report_wrong_type(node, "a rule", "a mapping", context.problems, help=help)
        return None
    if "kind" not in node.entries and (guarding or _is_guard_rule(node)):
        return read_guard_rule(node, context, ids)
    if guarding and "then" not in node.entries:
        _report_no_action(node, context)
    return read_rule(node, context, ids)


def _is_guard_rule(node: MapNode) -> bool:
    if "then" in node.entries:
        return True
    when = node.entries.get("when")
    return when is not None and isinstance(when.value, MapNode) and not when.value.entries.keys().isdisjoint(NAMES)


def _report_no_action(node: MapNode, context: Context) -> None:
    context.problems.error(
        code="missing-key",
        message="a rule of a guard needs the key `then`",
        at=node.first_key,
        help="write what happens to the call, `then: block`, say; or move the rule to the section `rules`",
    )
