"""A rule file that was made from a prompt, and perhaps edited since → the rules of that prompt.

`x-prompt` at the top names the prompt by its hash; at a rule it names the rule of the prompt that it decides. Rules
without it are rules of their own. What the prompt states beyond the file and cannot be checked stays undecided.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from bylaw.comply.model import PromptRules
from bylaw.comply.prompt.model import OF_ENGINE, Aspect, EngineItem, PromptRule, Tier
from bylaw.comply.prompt.reading import prompt_hash
from bylaw.model.rule import Rule
from bylaw.rules.documents import parse_documents
from bylaw.rules.files import read_text_file
from bylaw.rules.inputs import format_of
from bylaw.rules.loader import load_rules
from bylaw.rules.located import plain
from bylaw.rules.problems import Problems
from bylaw.rules.source import Source

PIN = "x-prompt"


def read_pinned(path: str | os.PathLike[str], prompt: str, stated: Sequence[PromptRule] = ()) -> PromptRules:
    """`stated`: what is read from the prompt as it is now. Raises InputError where the file is no rule file."""
    found = load_rules(path)
    top, pins = _pins(os.fspath(path))
    groups: dict[str, list[Rule]] = {}
    for rule in found.rules:
        groups.setdefault(_text(pins.get(rule.id, {}), "rule") or rule.id, []).append(rule)
    moved = None if _text(top, "sha256") == prompt_hash(prompt) else prompt
    rules = [_prompt_rule(name, group, pins, moved) for name, group in groups.items()]
    unchecked = [rule for rule in stated if not rule.items and rule.rule_id not in groups]
    return PromptRules(
        sha256=prompt_hash(prompt),
        rules=(*rules, *unchecked),
        engine=found.rules,
        owners={rule.id: name for name, group in groups.items() for rule in group},
        notes=_notes(os.fspath(path), top, prompt),
    )


def _pins(file: str) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]:
    """The pin of the file and those of its rules; what is not there or not readable is empty."""
    source = Source(file, read_text_file(Path(file), file))
    documents = parse_documents(source, Problems(source), format_of(file))
    root = plain(documents[0]) if documents else None
    if not isinstance(root, dict):
        return {}, {}
    rules = root.get("rules")
    listed = [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    pins = {str(rule.get("id")): rule[PIN] for rule in listed if isinstance(rule.get(PIN), dict)}
    top = root.get(PIN)
    return top if isinstance(top, dict) else {}, pins


def _prompt_rule(
    name: str, rules: Sequence[Rule], pins: Mapping[str, Mapping[str, Any]], moved: str | None
) -> PromptRule:
    """`moved` is the prompt, where it is not the one that the places were taken from."""
    pin = pins.get(rules[0].id, {})
    sentence = _text(pin, "sentence") or rules[0].description
    start, end = (_number(pin, "start"), _number(pin, "end")) if moved is None else _place(sentence, moved)
    severity, tier = _text(pin, "severity"), _text(pin, "tier")
    return PromptRule(
        rule_id=name,
        description=sentence or name,
        start=start,
        end=end,
        trigger=_text(pin, "trigger") or "always",
        required_action=_text(pin, "required_action"),
        forbidden_action=_text(pin, "forbidden_action"),
        severity=next((one for one in OF_ENGINE.values() if one == severity), OF_ENGINE[rules[0].severity.value]),
        tier=Tier(tier) if tier in tuple(Tier) else Tier.CERTAIN,
        confidence=_share(pin.get("confidence")),
        items=tuple(EngineItem({"id": rule.id, "kind": rule.kind}, _aspect(pins.get(rule.id, {}))) for rule in rules),
        undecided=_text(pin, "undecided"),
    )


def _notes(file: str, top: Mapping[str, Any], prompt: str) -> tuple[str, ...]:
    pinned = _text(top, "sha256")
    if pinned is None:
        return (f"`{file}` does not say which prompt it was made from",)
    if pinned != prompt_hash(prompt):
        return (f"`{file}` was made from another version of the prompt: compare them with `bylaw comply diff`",)
    return ()


def _place(sentence: str | None, prompt: str) -> tuple[int, int]:
    """Where the sentence stands in a prompt that has changed since; at its beginning where it is gone."""
    start = -1 if sentence is None else prompt.find(sentence)
    return (0, 0) if start < 0 or sentence is None else (start, start + len(sentence))


def _text(pin: Mapping[str, Any], key: str) -> str | None:
    value = pin.get(key)
    return value if isinstance(value, str) and value else None


def _number(pin: Mapping[str, Any], key: str) -> int:
    value = pin.get(key)
    return value if type(value) is int and value >= 0 else 0


def _share(value: Any) -> float:
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else 1.0


def _aspect(pin: Mapping[str, Any]) -> Aspect:
    known: tuple[Aspect, ...] = get_args(Aspect)
    return next((aspect for aspect in known if aspect == pin.get("aspect")), "call")
