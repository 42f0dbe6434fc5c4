"""The invariant type `rule`: a rule of the same file by its id, or one written out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bylaw.contract.model import KeepsRule
from bylaw.model.rule import Rule
from bylaw.rules.located import MapNode, Node
from bylaw.rules.params import Context
from bylaw.rules.readers import read_text
from bylaw.rules.rule_fields import Ids
from bylaw.rules.rules import read_rule
from bylaw.rules.words import near, quote


class FileRules(Struct, frozen=True):
    """The rules that stand in the same file as the contract."""

    usable: Mapping[str, Rule]
    ids: Ids
    """of all of them, those that cannot be used too"""


def file_rules(rules: Iterable[Rule], ids: Ids, file: str) -> FileRules:
    """`ids` may hold those of other files too, which do not count."""
    here = {id: place for id, place in ids.items() if place.span.file == file}
    return FileRules({rule.id: rule for rule in rules}, here)


def read_rule_check(node: Node, invariant: MapNode, rules: FileRules, context: Context) -> KeepsRule | None:
    if isinstance(node, MapNode):
        return _written_out(node, invariant, context)
    id = read_text(node, "rule", context.problems)
    if id is None:
        return None
    rule = rules.usable.get(id)
    if rule is None and id not in rules.ids:
        _report_unknown(id, node, rules, context)
    return None if rule is None else KeepsRule(rule)


def _written_out(node: MapNode, invariant: MapNode, context: Context) -> KeepsRule | None:
    """It may do without an id: the invariant's own serves."""
    own = {} if "id" in node.entries else {key: entry for key, entry in invariant.entries.items() if key == "id"}
    item = read_rule(MapNode(node.source, node.start, node.end, {**node.entries, **own}), context, {})
    return None if item is None else KeepsRule(item.rule)


def _report_unknown(id: str, node: Node, rules: FileRules, context: Context) -> None:
    match = near(id, rules.usable)
    help = f"did you mean `{match}`?" if match else "put the rule under `rules:`, or write it out under `rule:`"
    context.problems.error(code="unknown-rule", message=f"the file has no rule {quote(id)}", at=node, help=help)
