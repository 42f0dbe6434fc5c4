"""The types of a contract's values, beside those that rules have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.param_types import TEXT_SCHEMA, TEXTS_SCHEMA
from bylaw.rules.params import Context, ParamType
from bylaw.rules.problems import Problems
from bylaw.rules.readers import read_count, read_text, report_wrong_type, warn_if_ambiguous
from bylaw.rules.regexes import check_pattern
from bylaw.rules.words import did_you_mean, quote

MAX_MS = 24 * 3600 * 1000
"""a fault or a timeout of more than a day is a slip of the keyboard"""


def word(code: str, what: str, words: Sequence[str], synonyms: Mapping[str, str], **accepted: str) -> ParamType:
    """One of these words, or one `accepted` in place of one; `what` names it in the message: "invariant type"."""

    def read(node: Node, name: str, context: Context) -> str | None:
        text = read_text(node, name, context.problems)
        if text is None or text in words:
            return text
        if text in accepted:
            return accepted[text]
        context.problems.error(
            code=code, message=f"unknown {what} {quote(text)}", at=node, help=did_you_mean(text, words, synonyms)
        )
        return None

    return ParamType(read, {"enum": [*words, *accepted]})


def whole(least: int, most: int, wanted: str) -> ParamType:
    def read(node: Node, name: str, context: Context) -> int | None:
        value = node.value if isinstance(node, ScalarNode) else None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            report_wrong_type(node, quote(name), wanted, context.problems)
            return None
        warn_if_ambiguous(node, context.problems)
        return value

    return ParamType(read, {"type": "integer", "minimum": least, "maximum": most})


def above(bound: int) -> ParamType:
    def read(node: Node, name: str, context: Context) -> float | None:
        value = number(node)
        if value is None or value <= bound:
            report_wrong_type(node, quote(name), f"a number above {bound}", context.problems)
            return None
        warn_if_ambiguous(node, context.problems)
        return value

    return ParamType(read, {"type": "number", "exclusiveMinimum": bound})


def number(node: Node) -> float | None:
    value = node.value if isinstance(node, ScalarNode) else None
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def _read_probability(node: Node, name: str, context: Context) -> float | None:
    value = number(node)
    if value is None or not 0 <= value <= 1:
        help = f"for {value:g} % write `{value / 100:g}`" if value and 1 < value <= 100 else None
        report_wrong_type(node, quote(name), "a number from 0 to 1", context.problems, help=help)
        return None
    if value == 0:
        report_never_fires(node, f"with {quote(name)} 0", context.problems)
        return None
    return value


def _read_nth(node: Node, name: str, context: Context) -> tuple[int, ...] | None:
    """The numbers of the calls, from 1."""
    items = node.items if isinstance(node, ListNode) else [node]
    numbers = [read_count(item, name, context.problems) for item in items]
    for item, count in zip(items, numbers, strict=True):
        if count == 0:
            report_never_fires(item, "on call 0; calls are counted from 1,", context.problems)
    if not items:
        report_never_fires(node, f"with {quote(name)} an empty list", context.problems)
    good = tuple(sorted({count for count in numbers if count}))
    return good if items and all(numbers) else None


def report_never_fires(node: Node, why: str, problems: Problems) -> None:
    problems.error(
        code="never-fires",
        message=f"a fault {why} can never happen",
        at=node,
        help="say which calls it hits, or remove the fault",
    )


def _read_pattern(node: Node, name: str, context: Context) -> str | None:
    pattern = read_text(node, name, context.problems)
    return pattern if pattern is not None and check_pattern(pattern, node, context.problems) else None


def _read_patterns(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    if not isinstance(node, ListNode):
        one = _read_pattern(node, name, context)
        return None if one is None else (one,)
    if not node.items:
        context.problems.error(code="empty-value", message=f"{quote(name)} is an empty list", at=node)
        return None
    patterns = [_read_pattern(item, name, context) for item in node.items]
    good = tuple(pattern for pattern in patterns if pattern is not None)
    return good if len(good) == len(patterns) else None


def _read_payload(node: Node, name: str, context: Context) -> Any:
    """Any JSON value but null, which stands for no payload at all."""
    if isinstance(node, ScalarNode) and node.value is None:
        report_wrong_type(node, quote(name), "a value", context.problems, help="remove the key for the default")
        return None
    warn_if_ambiguous(node, context.problems)
    return plain(node)


def _read_template(node: Node, name: str, context: Context) -> str | None:
    if isinstance(node, MapNode | ListNode):
        help = f"write it as text: {name}: '{_clip(json.dumps(plain(node)))}'"
        report_wrong_type(node, quote(name), "text", context.problems, help=help)
        return None
    return read_text(node, name, context.problems)


def _clip(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


TEXT = ParamType(lambda node, name, c: read_text(node, name, c.problems), TEXT_SCHEMA)
PATTERN = ParamType(_read_pattern, TEXT_SCHEMA)
"""a regular expression that RE2 takes"""
PATTERNS = ParamType(_read_patterns, TEXTS_SCHEMA)
PAYLOAD = ParamType(_read_payload, {"not": {"type": "null"}})
TEMPLATE = ParamType(_read_template, TEXT_SCHEMA)
PROBABILITY = ParamType(_read_probability, {"type": "number", "exclusiveMinimum": 0, "maximum": 1})
_ONE_NTH: dict[str, Any] = {"type": "integer", "minimum": 1}
NTH = ParamType(_read_nth, {"anyOf": [_ONE_NTH, {"type": "array", "items": _ONE_NTH, "minItems": 1}]})
POSITIVE = above(0)
MILLISECONDS = whole(1, MAX_MS, "a whole number of milliseconds from 1 up to a day's")
STATUS = whole(400, 599, "a status from 400 to 599")
FROM_ONE = whole(1, 1_000_000, "a whole number from 1 up")
PORT = whole(1, 65_535, "a port from 1 to 65535")
SEED = whole(0, 2**63 - 1, "a whole number from 0 up")
