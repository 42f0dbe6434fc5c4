"""Limits that always held: how large an argument is, which values it takes, how often a tool is called in a session."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bylaw.guard.proposals.facts import Facts, PathFacts, ToolFacts, can_be_named, slug
from bylaw.guard.proposals.report import Proposal
from bylaw.text.redaction.redactor import redacted

MOST_CHOICES = 8
CALLS_A_VALUE = 10
"""calls for each value of a closed set, at least: with fewer, unseen values are likely"""
SHARED_BY = 3
"""tools: an argument that so many tools share is an identifier, not a choice"""
HARD_SHARE = 0.05
"""share of the calls at exactly the highest value, from which it is a limit and not only the highest so far"""
MARGIN = 0.25
HARD, SOFT = 0.6, 0.3
"""specificity of a bound"""
_IDENTIFIER = re.compile(
    r"(?i)(^|[_.])(id|ids|uuid|number|no|nr|code|phone|zip|postcode|date|year|time|ts|index|page)$|Id$"
)
"""the last word of a path whose numbers are identifiers, not quantities"""


def propose_limits(facts: Facts, min_support: int, schemas: Mapping[str, Any]) -> Iterator[Proposal]:
    shared = Counter(path for known in facts.tools.values() for path in known.paths)
    for tool, known in sorted(facts.tools.items()):
        if not can_be_named(tool):
            continue
        if known.calls >= min_support:
            for path, values in sorted(known.paths.items()):
                if values.present == known.calls and not _is_secret(path):
                    schema = _schema_at(schemas.get(tool), path)
                    yield from _of_path(tool, path, values, known, schema, shared[path])
        if known.sessions >= min_support:
            yield _ceiling(tool, known)


def _of_path(
    tool: str, path: str, values: PathFacts, known: ToolFacts, schema: Mapping[str, Any], shared: int
) -> Iterator[Proposal]:
    choices = _choices(values)
    if choices is not None and shared < SHARED_BY and not _IDENTIFIER.search(path):
        if "enum" not in schema and "const" not in schema:
            yield _value_set(tool, path, choices, known)
    elif values.numbers == values.present and not _IDENTIFIER.search(path) and "maximum" not in schema:
        yield _range(tool, path, values, known)


def _choices(values: PathFacts) -> list[Any] | None:
    """The values of a closed set: few, and none of them rare; None if it is not one."""
    found = values.values
    if found is None or not 2 <= len(found) <= MOST_CHOICES or values.present < CALLS_A_VALUE * len(found):
        return None
    plain = [value for _, value in found]
    if min(found.values()) < 2 or all(isinstance(value, bool) for value in plain):
        return None
    return sorted(plain, key=lambda value: (str(type(value)), value))


def _value_set(tool: str, path: str, choices: list[Any], known: ToolFacts) -> Proposal:
    rule = {
        "id": f"{slug(tool)}-{slug(path)}-values",
        "when": {"tool_name_in": [tool], "arg_not_in": {"path": path, "values": choices}},
        "then": "block",
        "reason": f"{path} of {tool} has always been one of {len(choices)} values",
    }
    says = f"{path} of {tool} is one of {', '.join(map(str, choices))}"
    return _proposal("values", tool, says, rule, known, 1 - len(choices) / (MOST_CHOICES + 1))


def _range(tool: str, path: str, values: PathFacts, known: ToolFacts) -> Proposal:
    hard = values.at_highest >= max(3, HARD_SHARE * values.present)
    bound = values.highest if hard else _with_margin(values.highest)
    bound = int(bound) if values.whole else bound
    rule = {
        "id": f"{slug(tool)}-{slug(path)}-limit",
        "when": {
            "tool_name_in": [tool],
            "any_of": [{"arg_gt": {"path": path, "value": bound}}, {"arg_missing": {"path": path}}],
        },
        "then": "block",
        "reason": f"{path} of {tool} has always been at most {bound:,}",
    }
    seen = "" if hard else f" ({_shown(values.highest)} seen)"
    return _proposal("range", tool, f"{path} of {tool} is at most {bound:,}{seen}", rule, known, HARD if hard else SOFT)


def _with_margin(highest: float) -> float:
    """The highest value plus a margin, rounded up to two digits."""
    raised = highest + abs(highest) * MARGIN
    if not raised:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(raised))) - 1)
    return float(f"{math.ceil(raised / step) * step:.12g}")


def _shown(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _ceiling(tool: str, known: ToolFacts) -> Proposal:
    highest = max(known.per_session)
    hard = known.per_session[highest] >= max(3, HARD_SHARE * known.sessions)
    most = highest if hard else highest + max(1, round(highest * MARGIN))
    rule = {
        "id": f"{slug(tool)}-per-session",
        "when": {"tool_name_in": [tool], "call_count_in_session_gt": {"tool": tool, "value": most}},
        "then": "block",
        "reason": f"{tool} has never been called so often in a session",
    }
    seen = "" if hard else f" ({highest:,} seen)"
    says = f"{tool} at most {most:,} {'time' if most == 1 else 'times'} in a session{seen}"
    return _proposal("ceiling", tool, says, rule, known, (HARD if hard else SOFT) / (1 + most))


def _proposal(kind: Any, tool: str, says: str, rule: dict[str, Any], known: ToolFacts, specificity: float) -> Proposal:
    return Proposal(
        kind=kind,
        tools=(tool,),
        says=says,
        rule=rule,
        calls=known.calls,
        sessions=known.sessions,
        specificity=specificity,
    )


def _is_secret(path: str) -> bool:
    key = path.rpartition(".")[2]
    return bool(redacted({key: "x"}) != {key: "x"})


def _schema_at(schema: Any, path: str) -> Mapping[str, Any]:
    """The tool's own JSON Schema of the argument."""
    for key in path.split("."):
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        schema = properties.get(key) if isinstance(properties, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}
