"""The rules of a prompt as a rule file: to be reviewed, edited, checked in, and run by `check` and the guard.

The key `x-prompt` at the top identifies the prompt by its hash; at a rule, it names the rule of the prompt that it
decides. Rules without it are rules of their own. A rule of the prompt that is not in the file and cannot be checked
stays undecided.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, get_args

from bylaw.comply.model import RULE_SEVERITY, Aspect, EngineItem, PromptRule, PromptRules, Tier
from bylaw.comply.prompt import prompt_hash
from bylaw.comply.report import line_and_column, one_line
from bylaw.model.rule import Rule
from bylaw.rules.files import format_of, read_text_file
from bylaw.rules.loader import load_rules, parse_documents
from bylaw.rules.nodes import Problems, Source, plain

PIN = "x-prompt"

# -- writing -----------------------------------------------------------------------------------------------------------


def render_rule_file(prompt: PromptRules, file: str, text: str) -> str:
    return "\n".join(_lines(prompt, file, text)) + "\n"


def _lines(prompt: PromptRules, file: str, text: str) -> Iterator[str]:
    yield f"# The rules that {one_line(file)} states, as far as they can be checked. Edit or remove any."
    yield "# `bylaw check TRACE --policy FILE` runs them; `bylaw comply --rules FILE` says when the prompt has changed."
    yield "# A call that failed did nothing: a rule `…-done` says so where another call must come first, or follow."
    yield from _yaml({PIN: {"file": file, "sha256": prompt.sha256}})
    usable = [any(one.item["id"] in prompt.owners for one in rule.items) for rule in prompt.rules]
    yield "\nrules:" if any(usable) else "\nrules: []"
    for rule in compress(prompt.rules, usable):
        yield from _rule(rule, prompt, text)
    unchecked = [rule for rule, is_usable in zip(prompt.rules, usable, strict=True) if not is_usable]
    if unchecked:
        yield "\n# Not checkable as they stand:"
    for rule in unchecked:
        why = rule.undecided or prompt.unusable.get(rule.rule_id, "")
        yield f"# - {_about(rule, text)}"
        yield f"#   {one_line(rule.description)}"
        yield f"#   undecided: {one_line(why)}"


def _rule(rule: PromptRule, prompt: PromptRules, text: str) -> Iterator[str]:
    yield f"\n  # {_about(rule, text)}"
    yield f"  # {one_line(rule.description)}"
    if rule.undecided:
        yield f"  # not checked: {one_line(rule.undecided)}"
    for one in rule.items:
        if one.item["id"] in prompt.owners:
            yield from _engine_rule(one.item, _pin(rule, one))
            if one.done is not None:
                yield from _engine_rule(one.done, {"rule": rule.rule_id, "failed_calls": True})
            elif one.aspect == "count":
                yield "    # a call that failed counts as made here"


def _engine_rule(item: Mapping[str, Any], pin: dict[str, Any]) -> Iterator[str]:
    first, *rest = _yaml(item)
    yield f"  - {first}"
    yield from (f"    {line}" if line else "" for line in rest)
    yield f"    {PIN}: " + "\n".join(_yaml(pin, default_flow_style=True, width=10**6))


def _about(rule: PromptRule, text: str) -> str:
    line, column = line_and_column(text, rule.start)
    tier = f"{rule.tier} · " if rule.items else ""
    return f"{rule.rule_id} · {line}:{column} · {tier}{rule.severity}"


def _pin(rule: PromptRule, one: EngineItem) -> dict[str, Any]:
    """The data that the engine rule does not hold, without the defaults of `read_rule_file`."""
    pin: dict[str, Any] = {"rule": rule.rule_id, "start": rule.start, "end": rule.end}
    more = {
        "tier": (rule.tier and rule.tier.value, "certain"),
        "confidence": (rule.confidence, 1.0),
        "severity": (rule.severity, RULE_SEVERITY.get(one.item.get("severity", "error"))),
        "aspect": (one.aspect, "call"),
        "part": (one.tier and one.tier.value, None),
        "trigger": (rule.trigger, "always"),
        "required_action": (rule.required_action, None),
        "forbidden_action": (rule.forbidden_action, None),
        "undecided": (rule.undecided, None),
        "sentence": (rule.description, one.item.get("description")),
    }
    return pin | {key: value for key, (value, default) in more.items() if value != default}


def _yaml(value: Mapping[str, Any], **more: Any) -> list[str]:
    import yaml

    options = {"sort_keys": False, "allow_unicode": True, "width": 110, **more}
    return str(yaml.safe_dump(dict(value), **options)).rstrip("\n").split("\n")


# -- reading -----------------------------------------------------------------------------------------------------------


def read_rule_file(path: str | os.PathLike[str], prompt: str, stated: Sequence[PromptRule] = ()) -> PromptRules:
    """The rules of the file. `stated` are the rules of the prompt as it is now. Raises InputError."""
    top, pins, params = _written(os.fspath(path))
    groups: dict[str, list[Rule]] = {}
    done: dict[str, list[Rule]] = {}
    for rule in load_rules(path).rules:
        pin = pins.get(rule.id, {})
        some = done if pin.get("failed_calls") else groups
        some.setdefault(_text(pin, "rule") or rule.id, []).append(rule)
    for name in [one for one in done if one not in groups]:  # alone, it is a rule like any other
        groups[name] = done.pop(name)
    changed = None if _text(top, "sha256") == prompt_hash(prompt) else prompt
    rules = [_prompt_rule(name, group, pins, params, changed) for name, group in groups.items()]
    unchecked = [rule for rule in stated if not rule.items and rule.rule_id not in groups]
    return PromptRules(
        sha256=prompt_hash(prompt),
        rules=(*rules, *unchecked),
        engine=tuple(rule for group in groups.values() for rule in group),
        owners={rule.id: name for name, group in groups.items() for rule in group},
        done={name: tuple(group) for name, group in done.items()},
        notes=_notes(os.fspath(path), top, prompt),
    )


def _written(file: str) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]], dict[str, Any]]:
    """The pin of the file, and the pins and parameters of its rules; a missing or malformed pin is empty."""
    source = Source(file, read_text_file(Path(file), file))
    documents = parse_documents(source, Problems(source), format_of(file))
    root = plain(documents[0]) if documents else None
    if not isinstance(root, dict):
        return {}, {}, {}
    rules = root.get("rules")
    listed = [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    pins = {str(rule.get("id")): rule[PIN] for rule in listed if isinstance(rule.get(PIN), dict)}
    params = {str(rule.get("id")): rule.get("params") for rule in listed}
    top = root.get(PIN)
    return top if isinstance(top, dict) else {}, pins, params


def _prompt_rule(
    name: str,
    rules: Sequence[Rule],
    pins: Mapping[str, Mapping[str, Any]],
    params: Mapping[str, Any],
    changed: str | None,
) -> PromptRule:
    """`changed` is the prompt, if it is not the one that the file was made from."""
    pin = pins.get(rules[0].id, {})
    sentence = _text(pin, "sentence") or rules[0].description
    start, end = (_number(pin, "start"), _number(pin, "end")) if changed is None else _place(sentence, changed)
    severity, tier = _text(pin, "severity"), _text(pin, "tier")
    share: Any = pin.get("confidence")
    return PromptRule(
        rule_id=name,
        description=sentence or name,
        start=start,
        end=end,
        trigger=_text(pin, "trigger") or "always",
        required_action=_text(pin, "required_action"),
        forbidden_action=_text(pin, "forbidden_action"),
        severity=next(
            (one for one in RULE_SEVERITY.values() if one == severity), RULE_SEVERITY[rules[0].severity.value]
        ),
        tier=Tier(tier) if tier in tuple(Tier) else Tier.CERTAIN,
        confidence=float(share) if type(share) in (int, float) and 0 <= share <= 1 else 1.0,
        items=tuple(_item(rule, pins.get(rule.id, {}), params.get(rule.id)) for rule in rules),
        undecided=_text(pin, "undecided"),
    )


def _item(rule: Rule, pin: Mapping[str, Any], params: Any) -> EngineItem:
    part = _text(pin, "part")
    known: tuple[Aspect, ...] = get_args(Aspect)
    aspect: Aspect = next((one for one in known if one == pin.get("aspect")), "call")
    item = {"id": rule.id, "kind": rule.kind, "params": params if isinstance(params, dict) else {}}
    return EngineItem(item, aspect, Tier(part) if part in tuple(Tier) else None)


def _notes(file: str, top: Mapping[str, Any], prompt: str) -> tuple[str, ...]:
    pinned = _text(top, "sha256")
    if pinned is None:
        return (f"`{file}` does not say which prompt it was made from",)
    if pinned != prompt_hash(prompt):
        return (f"`{file}` was made from another version of the prompt: compare them with `bylaw comply diff`",)
    return ()


def _place(sentence: str | None, prompt: str) -> tuple[int, int]:
    """The position of the sentence in a prompt that has changed; the beginning if it is not there."""
    start = -1 if sentence is None else prompt.find(sentence)
    return (0, 0) if start < 0 or sentence is None else (start, start + len(sentence))


def _text(pin: Mapping[str, Any], key: str) -> str | None:
    value = pin.get(key)
    return value if isinstance(value, str) and value else None


def _number(pin: Mapping[str, Any], key: str) -> int:
    value = pin.get(key)
    return value if type(value) is int and value >= 0 else 0
