"""A node as a typed value. Each reader reports what it cannot use and then returns None, which no valid value is."""

from __future__ import annotations

import re

from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.problems import Problems
from bylaw.rules.words import as_json, quote

_DIGITS = re.compile(r"[0-9][0-9_, ]*")
_YES = {"true": "true", "yes": "true", "on": "true", "1": "true"}
_NO = {"false": "false", "no": "false", "off": "false", "0": "false"}


def read_text(node: Node, name: str, problems: Problems) -> str | None:
    """Text that is not empty, and that every YAML tool reads as text."""
    if not isinstance(node, ScalarNode) or node.value is None:
        report_wrong_type(node, quote(name), "text", problems)
        return None
    if isinstance(node.value, bool) or isinstance(node.legacy, bool):
        _unquoted(node, name, problems, code="unquoted-boolean", read_as=_boolean_reading(node))
        return None
    if not isinstance(node.value, str):
        _unquoted(node, name, problems, code="unquoted-number", read_as="is a number")
        return None
    if not node.value:
        problems.error(code="empty-value", message=f"{quote(name)} is empty", at=node)
        return None
    return node.value


def read_texts(node: Node, name: str, problems: Problems) -> tuple[str, ...] | None:
    """A text, or a list of them that is not empty."""
    if not isinstance(node, ListNode):
        one = read_text(node, name, problems)
        return None if one is None else (one,)
    if not node.items:
        problems.error(code="empty-value", message=f"{quote(name)} is an empty list", at=node)
        return None
    texts = [read_text(item, name, problems) for item in node.items]
    good = tuple(text for text in texts if text is not None)
    return good if len(good) == len(texts) else None


def read_count(node: Node, name: str, problems: Problems) -> int | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        report_wrong_type(node, quote(name), "a whole number from 0 up", problems, help=_count_help(value))
        return None
    warn_if_ambiguous(node, problems)
    return value


def read_share(node: Node, name: str, problems: Problems) -> float | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        report_wrong_type(node, quote(name), "a number from 0 to 1", problems, help=_share_help(value))
        return None
    return float(value)


def read_flag(node: Node, name: str, problems: Problems) -> bool | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, bool):
        meant = (_YES | _NO).get(str(value).lower())
        help = f"write `{meant}`, without quotes" if meant else None
        report_wrong_type(node, quote(name), "`true` or `false`", problems, help=help)
        return None
    return value


def read_map(node: Node, name: str, problems: Problems) -> MapNode | None:
    if not isinstance(node, MapNode):
        report_wrong_type(node, quote(name), "a mapping", problems)
        return None
    return node


def read_json(node: Node, problems: Problems) -> object:
    """Any value at all, with a warning for whatever other tools would read differently."""
    warn_if_ambiguous(node, problems)
    return plain(node)


def report_wrong_type(node: Node, what: str, wanted: str, problems: Problems, *, help: str | None = None) -> None:
    """`what` is a name in backticks, or a phrase such as "a rule"."""
    problems.error(code="wrong-type", message=f"{what} takes {wanted}, not {_describe(node)}", at=node, help=help)


def warn_if_ambiguous(node: Node, problems: Problems) -> None:
    """Warn of each unquoted scalar under `node` that YAML 1.1 tools read as something else."""
    if isinstance(node, ListNode):
        for item in node.items:
            warn_if_ambiguous(item, problems)
    elif isinstance(node, MapNode):
        for entry in node.entries.values():
            warn_if_ambiguous(entry.value, problems)
    elif node.legacy is not None:
        _warn_ambiguous(node, problems)


def _warn_ambiguous(node: ScalarNode, problems: Problems) -> None:
    if isinstance(node.legacy, bool):
        other = f"`{str(node.legacy).lower()}`"
        ours, theirs = "text", f"the boolean {other}"
        help = f"write {as_json(node.raw)} for the text, {other} for the boolean"
    else:
        ours, theirs = f"{node.value}", f"{node.legacy}"
        help = f"write `{node.value}`"
    problems.warn(
        code="ambiguous-scalar",
        message=f"{quote(node.raw)} is read as {ours} here; other YAML tools read {theirs}",
        at=node,
        help=help,
    )


def _unquoted(node: ScalarNode, name: str, problems: Problems, *, code: str, read_as: str) -> None:
    problems.error(
        code=code,
        message=f"{quote(name)} takes text, but {quote(node.raw)} without quotes {read_as}",
        at=node,
        help=f"put it in quotes: {as_json(node.raw)}",
    )


def _boolean_reading(node: ScalarNode) -> str:
    return "is a boolean" if isinstance(node.value, bool) else "is a boolean to many YAML tools"


def _count_help(value: object) -> str | None:
    if isinstance(value, float) and value.is_integer() and value >= 0:
        return f"write `{int(value)}`"
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        digits = re.sub("[^0-9]", "", value)
        return f"write {quote(digits)}, without quotes" if digits == value else f"write {quote(digits)}"
    return None


def _share_help(value: object) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 < value <= 100:
        return f"for {value:g} % write `{value / 100:g}`"
    if isinstance(value, str) and re.fullmatch(r"0?\.[0-9]{1,17}|[01]", value):
        return f"write `{value}`, without quotes"
    return None


def _describe(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        return f"a {node.kind()}"
    if node.value is None:
        return "nothing"
    text = node.value if isinstance(node.value, str) else node.raw
    return f"the {node.kind()} {quote(text)}"
