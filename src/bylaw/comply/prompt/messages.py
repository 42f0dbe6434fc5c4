"""Parts of messages: a rule that the prompt states in words is reported in words.

A message of an engine rule goes on where the event ends that decided it: `issue_refund` was called, but `its amount is
above 100`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def name_tools(tools: Sequence[str]) -> str:
    """`a` or `b`, each in backticks; `any tool`."""
    return "any tool" if "*" in tools else " or ".join(f"`{tool}`" for tool in tools)


def name_same(joined: Sequence[str]) -> str:
    return f" with the same {' and '.join(f'`{param}`' for param in joined)}" if joined else ""


DESTRUCTIVE_SQL = r"\b(?:drop|delete|truncate|alter|update|grant|revoke)\b"
_PASSES = {
    "<": "is below",
    "<=": "is at most",
    ">": "is above",
    ">=": "is at least",
    "=": "is",
    "!=": "is not",
    "in": "is",
    "not in": "is not",
    "matches": "is of this kind",
    "present": "is given",
    "missing": "is not given",
}
_FAILS = {
    "<": "is not below",
    "<=": "is above",
    ">": "is not above",
    ">=": "is below",
    "=": "is not",
    "!=": "is",
    "in": "is not",
    "not in": "is",
    "matches": "is not of this kind",
    "present": "is not given",
    "missing": "is given",
}


def describe_arguments(tests: Sequence[tuple[str, str, Any]], *, fail: bool = False) -> str:
    """The arguments of a call that pass all tests, or that `fail` one of them: `its amount is above 100`."""
    if fail and [sign for _, sign, _ in tests] == [">=", "<="] and tests[0][0] == tests[1][0]:
        return f"its `{tests[0][0]}` is not between {tests[0][2]} and {tests[1][2]}"
    said = []
    for param, operator, value in tests:
        values = value if isinstance(value, list) else [] if value is None or operator == "matches" else [value]
        verb = (_FAILS if fail else _PASSES)[operator]
        if value == DESTRUCTIVE_SQL:
            verb = "is not destructive SQL" if fail else "is destructive SQL"
        if len(values) > 1:
            verb = "is none of" if verb == "is not" else "is one of"
        shown = ", ".join(json.dumps(one, ensure_ascii=False) for one in values)
        said.append(f"its `{param}` {verb} {shown}".rstrip())
    return (" or " if fail else " and ").join(said)
