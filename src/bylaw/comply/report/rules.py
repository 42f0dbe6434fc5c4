"""The rules of a prompt as a rule file: to be reviewed once, edited, checked in, and run by `check` and the guard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bylaw.comply.model import PromptRules
from bylaw.comply.prompt.model import OF_ENGINE, EngineItem, PromptRule
from bylaw.comply.report import wording

PIN = "x-prompt"
"""the key that says which prompt, and which rule of it"""


def render_rule_file(prompt: PromptRules, file: str, text: str) -> str:
    return "\n".join(_lines(prompt, file, text)) + "\n"


def _lines(prompt: PromptRules, file: str, text: str) -> Iterator[str]:
    yield f"# The rules that {wording.one_line(file)} states, as far as they can be checked. Edit or remove any."
    yield "# `bylaw check TRACE --policy FILE` runs them; `bylaw comply --rules FILE` says when the prompt has changed."
    yield from _yaml({PIN: {"file": file, "sha256": prompt.sha256}})
    ran = [rule for rule in prompt.rules if _usable(rule, prompt)]
    yield "" if ran else "\nrules: []"
    if ran:
        yield "rules:"
    for rule in ran:
        yield from _rule(rule, prompt, text)
    open_ = [rule for rule in prompt.rules if not _usable(rule, prompt)]
    if open_:
        yield "\n# Not checkable as they stand:"
    for rule in open_:
        why = rule.undecided or prompt.unusable.get(rule.rule_id, "")
        yield f"# - {_about(rule, text)}"
        yield f"#   {wording.one_line(rule.description)}"
        yield f"#   undecided: {wording.one_line(why)}"


def _usable(rule: PromptRule, prompt: PromptRules) -> bool:
    return any(one.item["id"] in prompt.owners for one in rule.items)


def _rule(rule: PromptRule, prompt: PromptRules, text: str) -> Iterator[str]:
    yield f"\n  # {_about(rule, text)}"
    yield f"  # {wording.one_line(rule.description)}"
    if rule.undecided:
        yield f"  # left open: {wording.one_line(rule.undecided)}"
    for one in rule.items:
        if one.item["id"] in prompt.owners:
            first, *rest = _yaml(one.item)
            yield f"  - {first}"
            yield from (f"    {line}" if line else "" for line in rest)
            yield f"    {PIN}: {_flow(_pin(rule, one))}"


def _about(rule: PromptRule, text: str) -> str:
    line, column = wording.line_and_column(text, rule.start)
    return f"{rule.rule_id} · {line}:{column} · {rule.tier} · {rule.severity}"


def _pin(rule: PromptRule, one: EngineItem) -> dict[str, Any]:
    """What the rule itself does not say; what is left out is what a reader of the file takes for granted."""
    pin: dict[str, Any] = {"rule": rule.rule_id, "start": rule.start, "end": rule.end}
    more = {
        "tier": (rule.tier.value, "certain"),
        "confidence": (rule.confidence, 1.0),
        "severity": (rule.severity, OF_ENGINE.get(one.item.get("severity", "error"))),
        "aspect": (one.aspect, "call"),
        "trigger": (rule.trigger, "always"),
        "required_action": (rule.required_action, None),
        "forbidden_action": (rule.forbidden_action, None),
        "undecided": (rule.undecided, None),
        "sentence": (rule.description, one.item.get("description")),
    }
    return pin | {key: value for key, (value, granted) in more.items() if value != granted}


def _yaml(value: Mapping[str, Any]) -> list[str]:
    import yaml

    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=110).rstrip("\n").split("\n")


def _flow(value: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(
        dict(value), sort_keys=False, allow_unicode=True, default_flow_style=True, width=10**6
    ).strip()
