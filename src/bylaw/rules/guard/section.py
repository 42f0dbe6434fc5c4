"""What stands under `guard:`: one guard, or a list of them, each for an agent."""

from __future__ import annotations

from collections import ChainMap

from bylaw.model.guarding import ExecutionMode
from bylaw.rules.fields import Fields
from bylaw.rules.guard.enforcement import MODES as RULE_MODES
from bylaw.rules.guard.enforcement import Item
from bylaw.rules.guard.guards import Guard
from bylaw.rules.guard.tools import read_tools
from bylaw.rules.guard.words import EXECUTION_MODE_WORDS
from bylaw.rules.items import read_items
from bylaw.rules.located import ListNode, MapNode, Node, plain
from bylaw.rules.params import Context
from bylaw.rules.readers import read_text, report_wrong_type
from bylaw.rules.rule_fields import Ids
from bylaw.rules.words import did_you_mean, quote

MODES: tuple[ExecutionMode, ...] = ("request", "hitl", "sub_agent")

_KEY_WORDS = {
    "agent_name": "agent",
    "allowed_tools": "tools",
    "allowlist": "tools",
    "execution_mode": "mode",
    "executionmode": "mode",
    "name": "agent",
    "operations": "tools",
}


def read_guards(node: Node, context: Context, ids: Ids) -> list[Guard]:
    """The guards of the section. Two of them may use the same id: no call is decided by both."""
    several = node.items if isinstance(node, ListNode) else [node]
    if not several:
        context.problems.warn(code="no-rules", message="the list of guards is empty", at=node)
    guards = [_read_guard(one, number, context, ids) for number, one in enumerate(several, 1)]
    return [guard for guard in guards if guard is not None]


def _read_guard(node: Node, number: int, context: Context, ids: Ids) -> Guard | None:
    problems = context.problems
    if not isinstance(node, MapNode):
        report_wrong_type(node, "`guard`", "a mapping with `rules:`, or a list of those", problems)
        return None
    if "then" in node.entries and "rules" not in node.entries:
        _report_rule(node, context)
        return None
    fields = Fields(node, problems, what="a guard")
    agent_node, mode_node, tools_node = fields.take("agent"), fields.take("mode"), fields.take("tools")
    rules = fields.require("rules", help="write the guard's rules as a list under it")
    fields.finish(synonyms=_KEY_WORDS)
    agent = read_text(agent_node, "agent", problems) if agent_node else None
    own: Ids = {}
    return Guard(
        items=read_guard_rules(rules, context, ChainMap(own, ids)) if rules else [],
        agent=agent,
        mode=_read_mode(mode_node, context) if mode_node else "request",
        tools=read_tools(tools_node, "tools", problems) if tools_node else None,
        source=plain(node),
        label=agent or f"guard-{number}",
        ids=own,
    )


def read_guard_rules(node: Node, context: Context, ids: Ids) -> list[Item]:
    """The rules of one guard."""
    if not isinstance(node, ListNode):
        report_wrong_type(node, "`rules`", "a list", context.problems, help="start each rule with `- `")
        return []
    if not node.items:
        context.problems.warn(code="no-rules", message="the guard has no rules", at=node)
    return read_items(node, context, ids, guarding=True)


def _read_mode(node: Node, context: Context) -> ExecutionMode | None:
    text = read_text(node, "mode", context.problems)
    for mode in MODES:
        if text == mode:
            return mode
    if text is not None:
        rule_mode = text in RULE_MODES
        help = f"`mode: {text}` stands in a rule" if rule_mode else did_you_mean(text, MODES, EXECUTION_MODE_WORDS)
        message = f"unknown mode {quote(text)} of a guard"
        context.problems.error(code="unknown-mode", message=message, at=node, help=help)
    return None


def _report_rule(node: MapNode, context: Context) -> None:
    context.problems.error(
        code="missing-key",
        message="a guard needs the key `rules`",
        at=node.first_key,
        help="this looks like one rule: put `rules:` between `guard:` and it",
    )
