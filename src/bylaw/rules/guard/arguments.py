"""`arg_*`: one comparison of what stands at a path in the call's arguments."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from bylaw.model.predicate import ArgumentIs
from bylaw.model.temporal import TestOperator
from bylaw.rules.fields import Fields
from bylaw.rules.guard.paths import ArgumentPath, read_argument_path
from bylaw.rules.located import Entry, ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.problems import Problems
from bylaw.rules.readers import read_json, read_text, report_wrong_type, warn_if_ambiguous
from bylaw.rules.regexes import check_pattern
from bylaw.rules.words import listing, quote

OPERATORS: dict[str, TestOperator] = {
    "arg_eq": "=",
    "arg_ne": "!=",
    "arg_gt": ">",
    "arg_gte": ">=",
    "arg_lt": "<",
    "arg_lte": "<=",
    "arg_in": "in",
    "arg_not_in": "not in",
    "arg_regex": "matches",
    "arg_contains": "contains",
    "arg_missing": "missing",
    "arg_present": "present",
}
PRESENCE = frozenset({"arg_missing", "arg_present"})
BOUNDS = frozenset({"arg_gt", "arg_gte", "arg_lt", "arg_lte"})
MEMBERSHIP = frozenset({"arg_in", "arg_not_in"})

_Value: TypeAlias = tuple[Any]
"""a value that was read, boxed: None says that there is none, `(None,)` is null"""

_NUMERIC = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_KEY_WORDS = {"field": "path", "argument": "path", "arg": "path", "name": "path", "key": "path"}
_VALUE_WORDS = {"threshold": "value", "val": "value", "than": "value", "to": "value"}
_PATTERN_WORDS = {"regex": "pattern", "value": "pattern", "regexp": "pattern", "match": "pattern"}
_VALUES_WORDS = {"list": "values", "options": "values", "of": "values"}


def read_argument(key: str, node: Node, problems: Problems) -> ArgumentIs | None:
    if key in PRESENCE and isinstance(node, ScalarNode):
        path = read_argument_path(node, key, problems)
        return _predicate(key, path, None) if path else None
    if not isinstance(node, MapNode):
        report_wrong_type(node, quote(key), "a mapping", problems, help=f"write it as `{key}: {form(key)}`")
        return None
    if _is_short(key, node):
        _report_short(key, node, problems)
        return None
    return _read_mapping(key, node, problems)


def form(key: str) -> str:
    """How the predicate is written."""
    rest = "".join(f", {name}: …" for name in _names(key)[1:])
    return f"{{path: …{rest}}}"


def _read_mapping(key: str, node: MapNode, problems: Problems) -> ArgumentIs | None:
    fields = Fields(node, problems, what=quote(key))
    path_node = fields.require("path", help="`path` leads to the argument, such as `amount` or `body.to`")
    entry = _take_value(key, fields)
    fields.finish(synonyms=_synonyms(key))
    path = read_argument_path(path_node, "path", problems) if path_node else None
    if key in PRESENCE:
        return _predicate(key, path, None) if path else None
    value = _read_value(key, entry.value, problems) if entry else None
    return _predicate(key, path, value[0]) if path and value else None


def _take_value(key: str, fields: Fields) -> Entry | None:
    """The entry that holds what to compare with, under either of its names."""
    names = [*_names(key)[1:], *(["value"] if key in MEMBERSHIP else [])]
    found = [entry for name in names if (entry := fields.entry(name))]
    if names and not found:
        fields.missing(tuple(names[:1]), help=f"write it as `{key}: {form(key)}`")
    for extra in found[1:]:
        fields.problems.error(
            code="duplicate-parameter",
            message=f"{listing(names)} give the same parameter",
            at=extra.key,
            help="keep one of them",
            related=(fields.problems.related(found[0].key, "the other one"),),
        )
    return found[0] if len(found) == 1 else None


def _read_value(key: str, node: Node, problems: Problems) -> _Value | None:
    if key in BOUNDS:
        return _read_number(key, node, problems)
    if key in MEMBERSHIP:
        return _read_list(key, node, problems)
    if key == "arg_regex":
        pattern = read_text(node, "pattern", problems)
        return (pattern,) if pattern is not None and check_pattern(pattern, node, problems) else None
    if key == "arg_contains" and isinstance(node, ScalarNode) and node.value == "":
        problems.warn(code="empty-value", message="every text contains the empty text", at=node)
    return (read_json(node, problems),)


def _read_number(key: str, node: Node, problems: Problems) -> _Value | None:
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        help = f"write {quote(value)}, without quotes" if isinstance(value, str) and _NUMERIC.fullmatch(value) else None
        report_wrong_type(node, "`value`", f"a number with `{key}`", problems, help=help)
        return None
    warn_if_ambiguous(node, problems)
    return (value,)


def _read_list(key: str, node: Node, problems: Problems) -> _Value | None:
    if not isinstance(node, ListNode):
        other = "arg_eq" if key == "arg_in" else "arg_ne"
        help = f"write the values in `[` and `]`, or use `{other}` for one value"
        report_wrong_type(node, "`values`", f"a list with `{key}`", problems, help=help)
        return None
    if not node.items:
        outcome = "never holds" if key == "arg_in" else "always holds"
        problems.warn(code="empty-value", message=f"the list is empty, so `{key}` {outcome}", at=node)
    return (read_json(node, problems),)


def _is_short(key: str, node: MapNode) -> bool:
    """`arg_gt: {amount: 10000}`."""
    if len(node.entries) != 1 or key in PRESENCE:
        return False
    (name,) = node.entries
    return name not in ("path", "value", *_names(key), *_synonyms(key)) and not name.startswith("x-")


def _report_short(key: str, node: MapNode, problems: Problems) -> None:
    ((name, entry),) = node.entries.items()
    shown = json.dumps(plain(entry.value), ensure_ascii=False)
    problems.error(
        code="missing-key",
        message=f"{quote(key)} needs the keys {listing(_names(key))}",
        at=entry.key,
        help=f"write {quote(f'{{path: {name}, {_names(key)[1]}: {shown}}}')}",
    )


def _predicate(key: str, path: ArgumentPath, value: Any) -> ArgumentIs:
    shown = "" if key in PRESENCE else f" {value}" if key == "arg_regex" else f" {_shown(value)}"
    return ArgumentIs(path=path.keys, op=OPERATORS[key], value=value, name=f"{key} {path.text}{shown}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _names(key: str) -> list[str]:
    """The keys of the predicate, as they are best written."""
    if key in PRESENCE:
        return ["path"]
    return ["path", "pattern" if key == "arg_regex" else "values" if key in MEMBERSHIP else "value"]


def _synonyms(key: str) -> dict[str, str]:
    words = {"pattern": _PATTERN_WORDS, "values": _VALUES_WORDS, "value": _VALUE_WORDS}
    return _KEY_WORDS | words.get(_names(key)[-1], {})
