"""The section `guard:`, one guard or a list of them, each for an agent; and the policies that the guards make."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.condition import NotOf, ToolIn
from bylaw.model.demand import Attempt
from bylaw.model.diagnostic import Span
from bylaw.model.rule import MODES, Action, ExecutionMode, GuardPolicy, GuardRule, Rule, Scope, parse_mode
from bylaw.rules.guard.rules import read_items
from bylaw.rules.messages import quote, synonyms
from bylaw.rules.nodes import ListNode, MapNode, Node, Problems, ScalarNode, plain
from bylaw.rules.params import Context
from bylaw.rules.readers import Choice, Fields, complete, read_text, report_wrong_type
from bylaw.rules.rule import MODES as RULE_MODES
from bylaw.rules.rule import Ids, Item
from bylaw.rules.versions import qualified_id, shared_ids

ALLOWLIST = "allowlist"
"""the id of the rule that only tools on the allowlist are called, as decisions name it"""
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
    return complete([_read_tool(item, name, problems) for item in node.items])


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


class Guard(Struct, frozen=True, kw_only=True):
    """One guard as it was read."""

    items: list[Item]
    agent: str | None = None
    mode: ExecutionMode | None = None
    tools: tuple[str, ...] | None = None
    tools_at: Span | None = None
    """where the allowlist stands"""
    sub_agents: tuple[str, ...] | None = None
    version: str | None = None
    status: str | None = None
    switched_off: bool = False
    approvals: list[Item] = []
    """rules that ask a person before an operation; `switched_off` does not concern them"""
    source: Any = None
    label: str
    """its name if two guards use the same id"""
    ids: Ids
    """the places of its own ids"""


def policies(guards: Sequence[Guard], shared: Sequence[Item], source: Any) -> list[GuardPolicy]:
    """A policy for each guard, and one for the agents that none of them is for.

    `shared` are the rules beside the guards, which hold for every agent and come first.
    """
    made = [policy for guard in guards for policy in _policies(guard, shared, source)]
    acting = any(item.enforcement for item in shared)
    if not guards or (acting and all(guard.agent is not None for guard in guards)):
        made.append(_policy(Guard(items=[], source=source, label="", ids={}), shared))
    return made


def _policies(guard: Guard, shared: Sequence[Item], source: Any) -> list[GuardPolicy]:
    beside = [one for one in source["rules"] if "then" in one] if shared and isinstance(source, dict) else []
    if beside:
        guard = replace(guard, source={**guard.source, "rules": [*beside, *guard.source["rules"]]})
    if not guard.approvals:
        return [_policy(guard, shared)]
    if not guard.switched_off:
        return [_policy(replace(guard, items=[*guard.items, *guard.approvals]), shared)]
    approving = replace(guard, items=guard.approvals, tools=None, sub_agents=None, switched_off=False)
    return [_policy(guard, shared), _policy(approving, ())]


def refuse_pauses(guard: Guard, shared: Sequence[Item], problems: Problems) -> None:
    """Report rules that ask a person for an agent in request mode, where no person can be asked."""
    if guard.mode != "request":
        return
    for item in (*shared, *guard.items):
        if item.enforcement and item.enforcement.then is Action.PAUSE:
            problems.error(
                code="pause-in-request-mode",
                message=f"the rule `{item.rule.id}` pauses, and a guard in the mode `request` has nobody to ask",
                at=item.enforcement.at,
                help="write `mode: hitl` or `mode: sub_agent` in the guard, or `then: block` here",
            )


def choose_guards(guards: Sequence[Guard], shared: Sequence[Item], root: Node, context: Context) -> list[Guard]:
    """The guards that `bylaw check` judges: those of the versions that a guard would enforce, without rules that are
    switched off."""
    at = root.first_key if isinstance(root, MapNode) else root
    try:
        chosen = context.selection.choose(guards, for_everyone=any(item.enforcement for item in shared))
    except InputError as problem:
        for one in problem.diagnostics:
            context.problems.error(code=one.code, message=one.message, at=at, help=one.help)
        return []
    for guard in chosen:
        if guard.switched_off and guard.items:
            message = f"the rules of {quote(guard.label)} are switched off, so they are not checked"
            context.problems.warn(code="no-rules", message=message, at=at, help="write `anomalyControl: true`")
    return [replace(guard, items=[]) if guard.switched_off else guard for guard in chosen]


def rules_of(guards: Sequence[Guard]) -> list[Rule]:
    """Every rule once, with an id of its own, and with the agent whose events it judges. Two guards may use one id, for
    the same rule or for two. Allowlists and approvals are rules too."""
    found: dict[str, Rule] = {}
    written = [(guard, [*(item.rule for item in guard.items), *_implied_rules(guard)]) for guard in guards]
    shared = shared_ids((guard.agent, rule.id) for guard, rules in written for rule in rules)
    for number, (guard, rules) in enumerate(written, 1):
        for rule in rules:
            if guard.agent is not None:
                id = qualified_id(guard.agent, rule.id) if rule.id in shared else rule.id
                rule = replace(rule, id=id, agents=(guard.agent,))
            free = _free_id(rule, guard.label, number, found)
            if free is not None:
                found[free] = replace(rule, id=free) if free != rule.id else rule
    return list(found.values())


def _implied_rules(guard: Guard) -> Iterator[Rule]:
    """The rules that a guard implies, such as its allowlist."""
    if guard.tools is not None:
        yield Rule(
            id=ALLOWLIST,
            kind="guard",
            demand=Attempt(NotOf(ToolIn(guard.tools))),
            scope=Scope.SESSION,
            sub_agents=False,  # they have allowlists of their own
            description="only the tools on the allowlist are called",
            params={"when": {"not": {"tool_name_in": list(guard.tools)}}, "then": Action.BLOCK.value},
            span=guard.tools_at,
        )
    for item in guard.approvals:
        asks = item.enforcement is not None and item.enforcement.approval and guard.mode != "request"
        rule = replace(item.rule, description=item.enforcement.reason if item.enforcement else None)
        yield replace(rule, demand=replace(rule.demand, asks=True)) if asks else rule


def _free_id(rule: Rule, label: str, number: int, found: dict[str, Rule]) -> str | None:
    """None where the rule is there already. `number` is the guard's own, so the last name is free but by design."""
    for id in (rule.id, f"{label}/{rule.id}", f"{label}/{number}/{rule.id}"):
        if id not in found:
            return id
        if replace(found[id], id="", span=None) == replace(rule, id="", span=None):
            return None
    return _free_id(rule, f"{label}/{number}", number, found)


def refuse_approvals(policy: GuardPolicy) -> GuardPolicy:
    """In request mode, calls that a person has to approve are refused."""
    if policy.mode != "request" or not any(rule.approval for rule in policy.rules):
        return policy

    def refusing(rule: GuardRule) -> GuardRule:
        own = replace(rule.rule, params={**rule.rule.params, "then": Action.BLOCK.value})
        reason = f"{rule.reason}, and nobody can be asked in `request` mode"
        return replace(rule, rule=own, then=Action.BLOCK, reason=reason, approval=False)

    return replace(policy, rules=tuple(refusing(rule) if rule.approval else rule for rule in policy.rules))


def _policy(guard: Guard, shared: Sequence[Item]) -> GuardPolicy:
    rules = tuple(item.enforcement.of(item.rule) for item in (*shared, *guard.items) if item.enforcement)
    same = {field: getattr(guard, field) for field in GuardPolicy.__struct_fields__ if field != "rules"}
    return refuse_approvals(GuardPolicy(rules=rules, **same))


_KEY_SYNONYMS = synonyms(
    {
        "agent": "agent_name name",
        "tools": "allowed_tools allowlist operations",
        "mode": "execution_mode executionmode",
    }
)


_MODE_SYNONYMS = synonyms(
    {
        "request": "auto autonomous",
        "hitl": "human_in_the_loop interactive",
        "sub_agent": "child subagent",
    }
)


_MODE = Choice("mode", MODES, "unknown-mode", "unknown mode {} of a guard", _MODE_SYNONYMS)


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
        help = "this looks like one rule: put `rules:` between `guard:` and it"
        problems.error(code="missing-key", message="a guard needs the key `rules`", at=node.first_key, help=help)
        return None
    fields = Fields(node, problems, what="a guard")
    agent_node, mode_node, tools_node = fields.take("agent"), fields.take("mode"), fields.take("tools")
    rules = fields.require("rules", help="write the guard's rules as a list under it")
    fields.finish(synonyms=_KEY_SYNONYMS)
    agent = read_text(agent_node, "agent", problems) if agent_node else None
    own: Ids = {}
    return Guard(
        items=read_guard_rules(rules, context, ChainMap(own, ids)) if rules else [],
        agent=agent,
        mode=read_mode(mode_node, context) if mode_node else "request",
        tools=read_tools(tools_node, "tools", problems) if tools_node else None,
        tools_at=tools_node.head if tools_node else None,
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


def read_mode(node: Node, context: Context) -> ExecutionMode | None:
    """In any usual spelling: `HITL`, `Sub-agent`."""
    if isinstance(node, ScalarNode) and (mode := parse_mode(node.value)):
        return mode
    misplaced = isinstance(node, ScalarNode) and node.value in RULE_MODES
    help = f"`mode: {node.raw}` stands in a rule" if misplaced else None
    return cast(ExecutionMode | None, _MODE.read(node, context.problems, help=help))
