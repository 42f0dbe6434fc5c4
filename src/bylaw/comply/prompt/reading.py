"""A prompt → its rules, ready for the engine: extracted, and read like those of any rule file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from bylaw.comply.model import PromptRules
from bylaw.comply.prompt import extract
from bylaw.comply.prompt.layout import MAX_PROMPT
from bylaw.comply.prompt.model import EngineItem, PromptRule, ToolSpec
from bylaw.model.ruleset import RuleSet
from bylaw.rules.loader import parse_rules

_OF_A_CONVERSATION = {"scope": "session"}
"""what a prompt says, it says of each conversation"""


def read_prompt(
    prompt: str, *, tools: Sequence[ToolSpec] = (), aliases: Mapping[str, Sequence[str]] | None = None
) -> PromptRules:
    return bind_rules(prompt, extract.extract_rules(prompt, tools=tools, aliases=aliases or {}))


def bind_rules(prompt: str, rules: Sequence[PromptRule]) -> PromptRules:
    """INVARIANT: an item that the engine cannot read makes its rule undecided; it never disappears."""
    rules = _with_own_ids(rules)
    owners = {one.item["id"]: rule.rule_id for rule in rules for one in rule.items}
    items = [one.item for rule in rules for one in rule.items]
    found = parse_rules(json.dumps(items), file="<prompt>", format="json") if items else RuleSet(())
    why = "; ".join(dict.fromkeys(problem.message for problem in found.diagnostics if problem.is_error))
    read = {rule.id for rule in found.rules}
    return PromptRules(
        sha256=prompt_hash(prompt),
        rules=tuple(rules),
        engine=tuple(replace(rule, span=None) for rule in found.rules),
        owners={item: rule for item, rule in owners.items() if item in read},
        unusable={rule: f"a part of it cannot be run: {why}" for item, rule in owners.items() if item not in read},
        notes=_notes(prompt, rules),
    )


def prompt_hash(prompt: str) -> str:
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _with_own_ids(rules: Sequence[PromptRule]) -> list[PromptRule]:
    """The same rules, no two items of which share an id."""
    taken: set[str] = set()
    return [replace(rule, items=tuple(_with_own_id(one, rule, taken) for one in rule.items)) for rule in rules]


def _with_own_id(one: EngineItem, rule: PromptRule, taken: set[str]) -> EngineItem:
    name = str(one.item.get("id", rule.rule_id))
    own = next(own for number in count(1) if (own := name if number == 1 else f"{name}-{number}") not in taken)
    taken.add(own)
    return EngineItem({"id": own} | _OF_A_CONVERSATION | one.item | {"id": own}, one.aspect)


def _notes(prompt: str, rules: Sequence[PromptRule]) -> tuple[str, ...]:
    if not prompt.strip():
        return ("the prompt is empty",)
    if len(prompt) > MAX_PROMPT:
        return (f"only the first {MAX_PROMPT:,} characters of the prompt were read",)
    return tuple(rule.undecided for rule in rules if rule.rule_id == extract.UNREAD and rule.undecided)
