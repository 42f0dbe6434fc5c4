"""A rule file's tree → rules. The file is a list of rules, or a mapping with `rules:`."""

from __future__ import annotations

from bylaw.dialects.fields import Fields
from bylaw.dialects.located import ListNode, MapNode, Node
from bylaw.dialects.params import Context
from bylaw.dialects.readers import report_wrong_type
from bylaw.dialects.rules import Ids, read_rule
from bylaw.dialects.words import listing
from bylaw.model.rule import Rule

PLAIN_KEYS = ("apiVersion", "version")
"""accepted and not read: other tools ask for them"""

UNCHECKED = ("agent", "chaos_matrix", "contract", "golden_prompts", "guard", "scoring")
"""sections for other commands"""

NOT_RUN = ("advanced", "chaos", "invariants", "model", "mutations", "output", "replays")
"""sections of formats we read, for things we do not do"""

_KEY_WORDS = {"api_version": "apiVersion", "policies": "rules", "policy": "rules"}


def read_policy(root: Node, context: Context, ids: Ids) -> list[Rule]:
    """The usable rules; everything wrong with the others is reported."""
    if isinstance(root, ListNode):
        return _read_rules(root, context, ids)
    if not isinstance(root, MapNode):
        report_wrong_type(root, "a rule file", "a list of rules or a mapping with `rules:`", context.problems)
        return []
    return _read_mapping(root, context, ids)


def _read_mapping(root: MapNode, context: Context, ids: Ids) -> list[Rule]:
    if "rules" not in root.entries and "kind" in root.entries:
        _report_single_rule(root, context)
        return []
    fields = Fields(root, context.problems, what="a rule file")
    rules = fields.take("rules")
    for key in PLAIN_KEYS:
        fields.take(key)
    others = [key for key in (*UNCHECKED, *NOT_RUN) if _take_section(key, fields)]
    if rules is None and not others:
        fields.missing(("rules",), help="write the rules as a list under it")
    fields.finish(synonyms=_KEY_WORDS, shown=("rules", *PLAIN_KEYS))
    if rules is None:
        _warn_no_rules(root, others, context)
        return []
    if not isinstance(rules, ListNode):
        report_wrong_type(rules, "`rules`", "a list", context.problems, help="start each rule with `- `")
        return []
    return _read_rules(rules, context, ids)


def _take_section(key: str, fields: Fields) -> bool:
    """Take a section that is not read here, and say so."""
    entry = fields.entry(key)
    if entry is None:
        return False
    if key in UNCHECKED:
        fields.problems.warn(
            code="section-not-checked",
            message=f"the section `{key}` is not checked here",
            at=entry.key,
            help="only `rules` is read by this command",
        )
    else:
        fields.problems.warn(
            code="section-not-run", message=f"the section `{key}` is not one that Bylaw runs", at=entry.key
        )
    return True


def _read_rules(node: ListNode, context: Context, ids: Ids) -> list[Rule]:
    if not node.items:
        context.problems.warn(code="no-rules", message="the list of rules is empty", at=node)
    rules = [read_rule(item, context, ids) for item in node.items]
    return [rule for rule in rules if rule is not None]


def _warn_no_rules(root: MapNode, others: list[str], context: Context) -> None:
    if others:
        message = f"the file has no `rules`, only {listing(others)}"
        context.problems.warn(code="no-rules", message=message, at=root.first_key)


def _report_single_rule(root: MapNode, context: Context) -> None:
    context.problems.error(
        code="missing-key",
        message="a rule file needs the key `rules`",
        at=root.first_key,
        help="this looks like one rule: put `rules:` above it and start it with `- `",
    )
