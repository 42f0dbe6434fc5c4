"""`chaos_matrix` → Scenarios."""

from __future__ import annotations

from collections import Counter

from bylaw.contract.faults import AnyFault, ContextAttack, LlmFault, ToolFault
from bylaw.contract.file.faults import read_attacks, read_llm_faults, read_tool_faults
from bylaw.contract.file.labels import distinct
from bylaw.contract.file.profiles import PROFILES, faults_of
from bylaw.contract.file.words import SCENARIO_KEY_WORDS
from bylaw.contract.model import Scenario
from bylaw.rules.fields import Fields
from bylaw.rules.located import ListNode, Located, MapNode, Node, ScalarNode
from bylaw.rules.params import Context
from bylaw.rules.readers import read_text, report_wrong_type
from bylaw.rules.rule_fields import Ids, read_optional_text
from bylaw.rules.words import did_you_mean, quote

FAULT_KEYS = ("tool_faults", "llm_faults", "context_attacks")
KEYS = ("name", "description", *FAULT_KEYS, "profile", "profiles")


def read_scenarios(node: Node, context: Context) -> list[Scenario]:
    """The usable ones; everything wrong with the others is reported."""
    if not isinstance(node, ListNode):
        help = "start each scenario with `- name: …`"
        report_wrong_type(node, "`chaos_matrix`", "a list", context.problems, help=help)
        return []
    if not node.items:
        context.problems.error(
            code="empty-value",
            message="`chaos_matrix` is empty, so nothing is run",
            at=node,
            help="`- name: calm` is a scenario in which nothing goes wrong",
        )
    names: Ids = {}
    found = [_read_scenario(item, names, context) for item in node.items]
    return [scenario for scenario in found if scenario is not None]


def _read_scenario(node: Node, names: Ids, context: Context) -> Scenario | None:
    if isinstance(node, ScalarNode):
        return _read_bare_profile(node, names, context)
    if not isinstance(node, MapNode):
        report_wrong_type(node, "a scenario", "a mapping or the name of a profile", context.problems)
        return None
    fields = Fields(node, context.problems, what="a scenario")
    name_node = fields.require("name", help="give the scenario a name of its own, such as `name: search-down`")
    read_optional_text(fields, "description")
    tools = read_tool_faults(fields.entry("tool_faults"), context)
    models = read_llm_faults(fields.entry("llm_faults"), context)
    attacks = read_attacks(fields.entry("context_attacks"), context)
    profiles = _read_profiles(fields, context)
    fields.finish(synonyms=SCENARIO_KEY_WORDS, shown=KEYS)
    name = read_text(name_node, "name", context.problems) if name_node else None
    if name is None or name_node is None or not _is_unique(name, name_node, names, context):
        return None
    own: tuple[AnyFault, ...] = (*tools, *models, *attacks)
    scenario = _scenario(name, own, profiles, node)
    _warn_nothing_left(scenario, node, context)
    return scenario


def _read_bare_profile(node: ScalarNode, names: Ids, context: Context) -> Scenario | None:
    """`- api_outage`: a scenario that is one profile."""
    profile = _read_profile(node, "chaos_matrix", context)
    if profile is None or not _is_unique(profile, node, names, context):
        return None
    return _scenario(profile, (), [(profile, node)], node)


def _scenario(name: str, own: tuple[AnyFault, ...], profiles: list[tuple[str, Node]], node: Located) -> Scenario:
    seen: Counter[str] = Counter()
    faults = list(own)
    for profile, at in profiles:
        seen[profile] += 1
        again = f"#{seen[profile]}" if seen[profile] > 1 else ""
        faults += faults_of(profile, f"{profile}{again}", at.head)
    named = distinct(faults)
    return Scenario(
        name=name,
        tool_faults=tuple(fault for fault in named if isinstance(fault, ToolFault)),
        llm_faults=tuple(fault for fault in named if isinstance(fault, LlmFault)),
        context_attacks=tuple(fault for fault in named if isinstance(fault, ContextAttack)),
        profiles=tuple(profile for profile, _ in profiles),
        span=node.head,
    )


def _read_profiles(fields: Fields, context: Context) -> list[tuple[str, Node]]:
    """`profile: NAME`, `profiles: [NAME, …]`, or both."""
    found: list[tuple[str, Node]] = []
    for key in ("profile", "profiles"):
        node = fields.take(key)
        items = node.items if isinstance(node, ListNode) else [node] if node else []
        read = [(_read_profile(item, key, context), item) for item in items]
        found += [(profile, item) for profile, item in read if profile is not None]
    return found


def _read_profile(node: Node, key: str, context: Context) -> str | None:
    text = read_text(node, key, context.problems)
    if text is None or text in PROFILES:
        return text
    context.problems.error(
        code="unknown-profile",
        message=f"unknown profile {quote(text)}",
        at=node,
        help=did_you_mean(text, PROFILES),
    )
    return None


def _is_unique(name: str, node: Node, names: Ids, context: Context) -> bool:
    first = names.setdefault(name, context.problems.related(node, "first used here"))
    if first.span == node.head:
        return True
    context.problems.error(
        code="duplicate-scenario",
        message=f"two scenarios are called {quote(name)}",
        at=node,
        help="give each scenario a name of its own",
        related=(first,),
    )
    return False


def _warn_nothing_left(scenario: Scenario, node: MapNode, context: Context) -> None:
    """Attacks that are all switched off leave a calm scenario, whatever its name says."""
    entry = node.entries.get("context_attacks")
    if entry is None or scenario.faults or not _all_off(entry.value):
        return
    context.problems.warn(
        code="nothing-left",
        message=f"nothing goes wrong in the scenario {quote(scenario.name)}: all its attacks are switched off",
        at=entry.key,
        help="remove `enabled: false`, or the attacks",
    )


def _all_off(node: Node) -> bool:
    items = node.items if isinstance(node, ListNode) else []
    items = [entry.value for entry in node.entries.values()] if isinstance(node, MapNode) else items
    return bool(items) and all(isinstance(item, MapNode) and _is_off(item) for item in items)


def _is_off(item: MapNode) -> bool:
    entry = item.entries.get("enabled")
    return entry is not None and isinstance(entry.value, ScalarNode) and entry.value.value is False
