"""Reads conditions on one call as predicates: `when` of a guard rule, `where`, and `arg_…` in other rules' `when`.

    group     = mapping of predicates, all of which must hold, or a list of groups, all of which must hold
              | {path: …, op: …, value: …}: a condition, its path starting at the call's arguments
    predicate = "all_of": [group, …] | "any_of": [group, …] | "not": group
              | "tool_name_in": names | "tool_name_regex": pattern
              | "arg_…": argument or a list of them | "call_count_…": counter or a list of them

An `arg_…` compares the value at a path in the call's arguments; a `call_count_…` counts attempts, the current one
included.

An empty group makes the whole rule match nothing: the rest of a rule after an edit must not match everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.model.condition import (
    FIELDS,
    TESTS,
    AllOf,
    AnyOf,
    ArgumentIs,
    Nothing,
    NotOf,
    Operator,
    Predicate,
    ToolIn,
    ToolMatches,
)
from bylaw.model.temporal import TestOperator
from bylaw.rules.messages import listing, quote, synonyms
from bylaw.rules.nodes import Entry, ListNode, Located, MapNode, Node, Problems, ScalarNode, plain
from bylaw.rules.operators import FORM, OVER, Comparison, is_comparison, read_comparison, read_counter
from bylaw.rules.paths import ArgumentPath, path_text, read_argument_path
from bylaw.rules.readers import (
    EXTENSION,
    Fields,
    complete,
    read_json,
    read_number,
    read_text,
    read_texts,
    report_wrong_type,
)
from bylaw.rules.regexes import check_pattern, check_text

# -- arguments --------------------------------------------------------------------------------------------------------

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
    "arg_matches": "matches",
    "arg_contains": "contains",
    "arg_not_contains": "not contains",
    "arg_starts_with": "starts with",
    "arg_ends_with": "ends with",
    "arg_missing": "missing",
    "arg_present": "present",
    "arg_exists": "present",
}
PRESENCE = frozenset({"arg_missing", "arg_present", "arg_exists"})
PATTERNS = frozenset({"arg_regex", "arg_matches"})
TEXTS = frozenset({"arg_starts_with", "arg_ends_with"})
BOUNDS = frozenset({"arg_gt", "arg_gte", "arg_lt", "arg_lte"})
MEMBERSHIP = frozenset({"arg_in", "arg_not_in"})

_Value: TypeAlias = tuple[Any]
"""a value that was read, boxed: None says that there is none, `(None,)` is null"""

_SYNONYMS = {
    "path": synonyms({"path": "field argument arg name key"}),
    "value": synonyms({"value": "threshold val than to"}),
    "pattern": synonyms({"pattern": "regex value regexp match"}),
    "values": synonyms({"values": "list options of"}),
}


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
    fields = Fields(node, problems, what=quote(key))
    path_node = fields.require("path", help="`path` leads to the argument, such as `amount` or `body.to`")
    entry = _take_value(key, fields)
    fields.finish(synonyms=_synonyms(key))
    argument = read_argument_path(path_node, "path", problems) if path_node else None
    if key in PRESENCE:
        return _predicate(key, argument, None) if argument else None
    value = _read_value(key, entry.value, problems) if entry else None
    return _predicate(key, argument, value[0]) if argument and value else None


def form(key: str) -> str:
    """How the predicate is written."""
    rest = "".join(f", {name}: …" for name in _names(key)[1:])
    return f"{{path: …{rest}}}"


def _take_value(key: str, fields: Fields) -> Entry | None:
    """The entry that holds what to compare with, under either of its names."""
    names = (*_names(key)[1:], *(["value"] if key in MEMBERSHIP else []))
    found = fields.take_one_of(names)
    if names and found is None:
        fields.missing(names[:1], help=f"write it as `{key}: {form(key)}`")
    return found if found and fields.has_one_of(names) else None


def _read_value(key: str, node: Node, problems: Problems) -> _Value | None:
    if key in BOUNDS:
        number = read_number(node, "value", f"a number with `{key}`", problems)
        return None if number is None else (number,)
    if key in MEMBERSHIP:
        return _read_list(key, node, problems)
    if key in PATTERNS:
        pattern = read_text(node, "pattern", problems)
        return (pattern,) if pattern is not None and check_pattern(pattern, node, problems) else None
    if key in TEXTS:
        affix = read_text(node, "value", problems)
        return (affix,) if affix is not None and check_text(affix, node, problems) else None
    if key == "arg_contains" and isinstance(node, ScalarNode) and node.value == "":
        problems.warn(code="empty-value", message="every text contains the empty text", at=node)
    text = node.value if key in ("arg_contains", "arg_not_contains") and isinstance(node, ScalarNode) else None
    if isinstance(text, str) and not check_text(text, node, problems):
        return None
    return (read_json(node, problems),)


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
    shown = "" if key in PRESENCE else f" {value}" if key in PATTERNS else f" {_to_json(value)}"
    return ArgumentIs(path=path.keys, op=OPERATORS[key], value=value, name=f"{key} {path.text}{shown}")


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _names(key: str) -> list[str]:
    """The keys of the predicate, as they are best written."""
    if key in PRESENCE:
        return ["path"]
    return ["path", "pattern" if key in PATTERNS else "values" if key in MEMBERSHIP else "value"]


def _synonyms(key: str) -> dict[str, str]:
    return _SYNONYMS["path"] | _SYNONYMS[_names(key)[-1]]


# -- groups -----------------------------------------------------------------------------------------------------------

MAX_DEPTH = 32
GROUPS = ("all_of", "any_of", "not")
NAMES = ("tool_name_in", "tool_name_regex", *OPERATORS, *OVER, *GROUPS)

_SHOWN = ("tool_name_in", "tool_name_regex", "arg_…", "call_count_…", *GROUPS)


PREDICATE_SYNONYMS = synonyms(
    {
        "all_of": "all and every",
        "any_of": "any one_of or",
        "not": "none_of",
        "tool_name_in": "tool tool_in tool_is tool_name tool_names tools",
        "tool_name_regex": "tool_matches tool_name_matches tool_name_pattern tool_pattern tool_regex",
        "arg_eq": "arg_equal arg_equals arg_is args_eq",
        "arg_ne": "arg_neq arg_not_eq arg_not_equal arg_not_equals",
        "arg_gt": "arg_above arg_greater arg_greater_than arg_over args_gt",
        "arg_gte": "arg_at_least arg_ge arg_min args_gte",
        "arg_lt": "arg_below arg_less arg_less_than arg_under args_lt",
        "arg_lte": "arg_at_most arg_le arg_max args_lte",
        "arg_in": "arg_one_of args_in",
        "arg_not_in": "arg_nin arg_none_of",
        "arg_regex": "arg_match arg_pattern args_regex",
        "arg_contains": "arg_has arg_includes",
        "arg_not_contains": "arg_excludes",
        "arg_starts_with": "arg_startswith arg_prefix",
        "arg_ends_with": "arg_endswith arg_suffix",
        "arg_missing": "arg_absent arg_not_exists arg_not_present args_missing",
        "arg_present": "arg_required args_present",
        "call_count_in_run_gt": "call_count call_count_gt call_count_in_run call_count_run_gt max_calls",
        "call_count_in_session_gt": "call_count_in_session call_count_session_gt",
        "call_count_in_window_gt": "call_count_in_window call_count_window_gt rate_limit",
    }
)


class LocatedPredicate(Struct, frozen=True):
    """One predicate that holds no others, and where it stands."""

    predicate: Predicate
    at: Located
    negated: bool
    """under an odd number of `not`"""


class When(Struct, frozen=True):
    predicate: Predicate
    leaves: tuple[LocatedPredicate, ...] = ()
    """in the order they are written"""


def read_when(entry: Entry, problems: Problems) -> When | None:
    """The predicate of a whole `when`; None where any of it is unusable."""
    reader = _Reader(problems)
    predicate = reader.group(entry.value, "when", entry.key, depth=0, negated=False)
    if predicate is None:
        return None
    return When(Nothing()) if reader.empty else When(predicate, tuple(reader.leaves))


def read_call(node: Node, name: str, problems: Problems, *, counts: str, tools: bool = True) -> Predicate | None:
    """A predicate outside the guard. `counts`: the help text for a counter, which only a guard supports."""
    reader = _Reader(problems, counts=counts, tools=tools)
    predicate = reader.group(node, name, node, depth=0, negated=False)
    return None if predicate is None else Nothing() if reader.empty else predicate


class _Reader:
    def __init__(self, problems: Problems, *, counts: str | None = None, tools: bool = True) -> None:
        self.problems = problems
        self.counts = counts
        self.tools = tools
        self.leaves: list[LocatedPredicate] = []
        self.empty = False

    def group(self, node: Node, name: str, at: Located, *, depth: int, negated: bool) -> Predicate | None:
        """A mapping of predicates. `at` is where to point when there is nothing in it."""
        if depth > MAX_DEPTH:
            message = f"the predicates are nested more than {MAX_DEPTH} levels deep"
            self.problems.error(code="too-deep", message=message, at=at)
            return None
        if isinstance(node, ListNode) and node.items:
            return _join_predicates(
                [self.group(one, name, one, depth=depth + 1, negated=negated) for one in node.items], AllOf
            )
        if not isinstance(node, MapNode):
            help = "write it as `{tool_name_in: […], arg_gt: {path: …, value: …}}`" if self.tools else FORM
            report_wrong_type(node, quote(name), "a mapping of predicates", self.problems, help=help)
            return None
        if is_comparison(node):
            return self._condition(node, negated)
        entries = {key: entry for key, entry in node.entries.items() if not key.startswith(EXTENSION)}
        if not entries:
            return self._warn_empty(name, at)
        read = [self._entry(key, entry, depth, negated) for key, entry in entries.items() if key in NAMES]
        fields = Fields(node, self.problems, what=quote(name), noun="predicate", code="unknown-predicate")
        fields.finish(synonyms=PREDICATE_SYNONYMS, shown=_SHOWN, accepted=NAMES)
        return _join_predicates(read, AllOf) if len(read) == len(entries) else None

    def _entry(self, key: str, entry: Entry, depth: int, negated: bool) -> Predicate | None:
        if key == "not":
            inner = self.group(entry.value, key, entry.key, depth=depth + 1, negated=not negated)
            return inner and NotOf(inner)
        if key in GROUPS:
            return self._groups(key, entry, depth, negated)
        if key in OPERATORS:
            return self._read_one_or_several(key, entry, negated, read_argument)
        if key in OVER:
            return self._read_counter(key, entry, negated)
        if not self.tools:
            help = "leave it out: the rule names its tool itself"
            self.problems.error(
                code="unknown-predicate", message=f"{quote(key)} says nothing here", at=entry.key, help=help
            )
            return None
        return self._leaf(self._tool(key, entry.value), entry.key, negated)

    def _groups(self, key: str, entry: Entry, depth: int, negated: bool) -> Predicate | None:
        node = entry.value
        if not isinstance(node, ListNode):
            help = f"write it as `{key}: [{{…}}, {{…}}]`, or start each with `- `"
            report_wrong_type(node, quote(key), "a list of mappings", self.problems, help=help)
            return None
        if not node.items:
            return self._warn_empty(key, entry.key)
        inner = [self.group(item, key, item, depth=depth + 1, negated=negated) for item in node.items]
        return _join_predicates(inner, AllOf if key == "all_of" else AnyOf)

    def _read_one_or_several(
        self, key: str, entry: Entry, negated: bool, read: Callable[[str, Node, Problems], Predicate | None]
    ) -> Predicate | None:
        """One predicate, or several of one name: a mapping cannot hold a key twice."""
        node = entry.value
        if not isinstance(node, ListNode):
            return self._leaf(read(key, node, self.problems), entry.key, negated)
        if not node.items:
            return self._warn_empty(key, entry.key)
        return _join_predicates(
            [self._leaf(read(key, item, self.problems), item, negated) for item in node.items], AllOf
        )

    def _read_counter(self, key: str, entry: Entry, negated: bool) -> Predicate | None:
        if self.counts is None:
            return self._read_one_or_several(key, entry, negated, read_counter)
        message = f"{quote(key)} counts attempts, which only the `when` of a guard rule does"
        self.problems.error(code="unknown-predicate", message=message, at=entry.key, help=self.counts)
        return None

    def _condition(self, node: MapNode, negated: bool) -> Predicate | None:
        """`{path: amount, op: ">", value: 500}`, as other rules write it."""
        comparison = read_comparison(node, self.problems)
        path = read_argument_path(comparison.path, "path", self.problems) if comparison else None
        if comparison is None or path is None:
            return None
        return self._leaf(_read_compared(path, comparison, self.problems), node.first_key, negated)

    def _tool(self, key: str, node: Node) -> Predicate | None:
        if key == "tool_name_in":
            names = read_texts(node, key, self.problems)
            nodes = node.items if isinstance(node, ListNode) else [node]
            are_good = [check_text(*one, self.problems) for one in zip(names or (), nodes, strict=names is not None)]
            return ToolIn(names) if names is not None and all(are_good) else None
        pattern = read_text(node, key, self.problems)
        return ToolMatches(pattern) if pattern is not None and check_pattern(pattern, node, self.problems) else None

    def _leaf(self, predicate: Predicate | None, at: Located, negated: bool) -> Predicate | None:
        if predicate is not None:
            self.leaves.append(LocatedPredicate(predicate, at, negated))
        return predicate

    def _warn_empty(self, name: str, at: Located) -> Predicate:
        self.empty = True
        self.problems.warn(
            code="matches-nothing",
            message=f"{quote(name)} is empty here, so the rule matches nothing",
            at=at,
            help="say what the rule is to match, or remove the rule",
        )
        return Nothing()


def _read_compared(path: ArgumentPath, comparison: Comparison, problems: Problems) -> Predicate | None:
    """The predicate of a condition. Paths into a turn are understood as far as they lead to the call."""
    keys, op, value = path.keys, comparison.op, comparison.value
    shown = "" if op in ("exists", "missing") else f" {_to_json(value)}"
    if keys[:2] == ("response", "tool_calls") and len(keys) > 3:
        if keys[3] == "name" and len(keys) == 4:
            return _name_predicate(op, value, comparison.path, problems)
        if keys[3] == "arguments" and len(keys) > 4:
            keys = keys[4:]
    elif len(keys) > 1 and keys[1] in FIELDS.get(keys[0] or "", ()):
        problems.error(
            code="unknown-path",
            message=f"{quote(path.text)} is a path into a turn, and this looks at one call",
            at=comparison.path,
            help="a path starts at the call's arguments here; put it into the `when` of a rule with `kind`",
        )
        return None
    return ArgumentIs(path=keys, op=TESTS[op], value=value, name=f"{path_text(keys)} {op}{shown}")


def _name_predicate(op: Operator, value: Any, at: Node, problems: Problems) -> Predicate | None:
    if op in ("==", "in", "!=", "not_in"):
        names = ToolIn(tuple(map(str, value)) if isinstance(value, list) else (str(value),))
        return names if op in ("==", "in") else NotOf(names)
    if op == "matches":
        return ToolMatches(value)
    help = "write `tool_name_in: […]` or `tool_name_regex: …`"
    problems.error(code="unknown-operator", message=f"`{op}` does not compare the names of tools", at=at, help=help)
    return None


def _join_predicates(read: Sequence[Predicate | None], join: type[AllOf] | type[AnyOf]) -> Predicate | None:
    good: tuple[Predicate, ...] | None = complete(read)
    if good is None:
        return None
    return good[0] if len(good) == 1 else join(good)
