"""`when` and `trigger`: conditions on a turn; `where`: conditions on the arguments of one call.

    clause = {path: …, op: …, value: …}
           | {any_of: [clause, …]} | {all_of: [clause, …]} | {not: clause or a list of them}
           | a mapping of the guard's predicates: one and the same call of the turn fits them all

A list of clauses holds if all of them do.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bylaw.model.condition import (
    TESTS,
    AllOf,
    AnyOf,
    ArgumentIs,
    Clause,
    Condition,
    Either,
    Every,
    NotOf,
    OfCall,
    Operator,
    Opposite,
    Path,
    Predicate,
    ToolIn,
    ToolMatches,
)
from bylaw.rules.messages import quote
from bylaw.rules.nodes import Entry, ListNode, MapNode, Node, Problems, plain
from bylaw.rules.operators import FORM, PRESENCE, is_comparison, read_comparison
from bylaw.rules.paths import BadPath, parse_path, path_text
from bylaw.rules.predicates import GROUPS, MAX_DEPTH, NAMES, read_call
from bylaw.rules.readers import EXTENSION, complete, read_text, report_wrong_type

_COUNTS = "to limit the calls of a tool write a rule of the kind `max_calls`, or a guard rule"


def read_conditions(node: Node, name: str, problems: Problems) -> tuple[Clause, ...] | None:
    """A list of clauses, or one alone; None where any of them is unusable."""
    return _read_list(node, name, problems, depth=0)


def read_path(node: Node, name: str, problems: Problems) -> Path | None:
    text = read_text(node, name, problems)
    if text is None:
        return None
    try:
        return parse_path(text)
    except BadPath as bad:
        problems.error(code=bad.code, message=bad.message, at=node, help=bad.help)
        return None


def plain_conditions(clauses: tuple[Clause, ...]) -> list[Any]:
    """As JSON values."""
    return [_to_plain(clause) for clause in clauses]


def _to_plain(clause: Clause) -> Any:
    match clause:
        case Condition(path=path, op=op, value=value):
            return _plain_comparison(path.text, op, value)
        case OfCall(plain=written):
            return written
        case Every(of=of):
            return {"all_of": plain_conditions(of)}
        case Either(of=of):
            return {"any_of": plain_conditions(of)}
        case Opposite(of=inner):
            return {"not": _to_plain(inner)}


def _plain_comparison(path: str, op: Operator, value: Any) -> dict[str, Any]:
    return {"path": path, "op": op} if op in PRESENCE else {"path": path, "op": op, "value": value}


def _read_list(node: Node, name: str, problems: Problems, *, depth: int) -> tuple[Clause, ...] | None:
    if not isinstance(node, ListNode | MapNode):
        report_wrong_type(node, quote(name), "a list of conditions", problems, help=FORM)
        return None
    items = node.items if isinstance(node, ListNode) else [node]
    return complete([_read_clause(item, problems, depth=depth) for item in items])


def _read_clause(node: Node, problems: Problems, *, depth: int) -> Clause | None:
    if depth > MAX_DEPTH:
        message = f"the conditions are nested more than {MAX_DEPTH} levels deep"
        problems.error(code="too-deep", message=message, at=node)
        return None
    if isinstance(node, ListNode) and depth and node.items:
        return _join_clauses(_read_list(node, "all_of", problems, depth=depth + 1), Every)
    if not isinstance(node, MapNode):
        report_wrong_type(node, "a condition", "a mapping", problems, help=FORM)
        return None
    if is_comparison(node) or _known_keys(node).isdisjoint({*NAMES, *GROUPS}):
        return _read_condition(node, problems)
    return _read_group(node, problems, depth=depth)


def _read_condition(node: MapNode, problems: Problems) -> Condition | None:
    comparison = read_comparison(node, problems)
    path_node = comparison.path if comparison else node.entries["path"].value if "path" in node.entries else None
    path = read_path(path_node, "path", problems) if path_node else None
    if path is None or comparison is None:
        return None
    return Condition(path=path, op=comparison.op, value=comparison.value, span=node.head)


def _read_group(node: MapNode, problems: Problems, *, depth: int) -> Clause | None:
    """A mapping of groups and predicates. Its predicates about calls must all hold for one call."""
    turns = [key for key in GROUPS if key in node.entries and not _is_of_call(node.entries[key].value)]
    of_call = replace(node, entries={key: entry for key, entry in node.entries.items() if key not in turns})
    read = [_read_entry(key, node.entries[key], problems, depth=depth) for key in turns]
    if _known_keys(of_call):
        predicate = read_call(of_call, "when", problems, counts=_COUNTS)
        read.append(None if predicate is None else OfCall(predicate, plain(of_call)))
    return _join_clauses(complete(read), Every)


def _read_entry(key: str, entry: Entry, problems: Problems, *, depth: int) -> Clause | None:
    node = entry.value
    if key != "not" and not isinstance(node, ListNode):
        help = f"write it as `{key}: [{{…}}, {{…}}]`, or start each with `- `"
        report_wrong_type(node, quote(key), "a list of conditions", problems, help=help)
        return None
    clauses = _read_list(node, key, problems, depth=depth + 1)
    if clauses == ():
        message = f"{quote(key)} is an empty list"
        problems.error(code="empty-value", message=message, at=entry.key, help="add a condition, or remove it")
        return None
    if key == "not":
        inner = _join_clauses(clauses, Every)
        return None if inner is None else Opposite(inner)
    return _join_clauses(clauses, Every if key == "all_of" else Either)


def _join_clauses(clauses: tuple[Clause, ...] | None, join: type[Every] | type[Either]) -> Clause | None:
    if not clauses:
        return None
    return clauses[0] if len(clauses) == 1 else join(clauses)


def _is_of_call(node: Node) -> bool:
    """Whether a group holds nothing but the guard's predicates."""
    if isinstance(node, ListNode):
        return bool(node.items) and all(map(_is_of_call, node.items))
    if not isinstance(node, MapNode) or is_comparison(node) or not _known_keys(node) <= {*NAMES}:
        return False
    return bool(_known_keys(node)) and all(
        _is_of_call(node.entries[key].value) for key in GROUPS if key in node.entries
    )


def _known_keys(node: MapNode) -> set[str]:
    return {key for key in node.entries if not key.startswith(EXTENSION)}


def conditions_schema(*, min_items: int = 0) -> dict[str, Any]:
    """The JSON Schema of what `read_conditions` accepts."""
    one = {"$ref": "#/$defs/condition"}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": min_items}]}


# -- where ------------------------------------------------------------------------------------------------------------


def read_where(node: Node, name: str, problems: Problems) -> Predicate | None:
    """Conditions on the arguments of a call, whose paths start there; None where any of them is unusable."""
    if not isinstance(node, ListNode | MapNode):
        report_wrong_type(node, quote(name), "a list of conditions", problems, help=FORM)
        return None
    if isinstance(node, ListNode) and not node.items:
        problems.error(code="empty-value", message=f"{quote(name)} is an empty list", at=node, help=FORM)
        return None
    return read_call(node, name, problems, counts=_COUNTS, tools=False)


def plain_where(predicate: Predicate) -> list[Any]:
    """As JSON values, in the form of conditions."""
    parts = predicate.of if isinstance(predicate, AllOf) else (predicate,)
    return [_plain_predicate(part) for part in parts]


def _plain_predicate(predicate: Predicate) -> Any:
    match predicate:
        case ArgumentIs(path=path, op=op, value=value):
            return _plain_comparison(path_text(path), _OPERATORS[op], value)
        case AllOf(of=of):
            return {"all_of": [_plain_predicate(one) for one in of]}
        case AnyOf(of=of):
            return {"any_of": [_plain_predicate(one) for one in of]}
        case NotOf(of=inner):
            return {"not": _plain_predicate(inner)}
        case ToolIn(names=names):
            return {"tool_name_in": list(names)}
        case ToolMatches(pattern=pattern):
            return {"tool_name_regex": pattern}
        case _:
            return {}


_OPERATORS: dict[str, Operator] = {test: op for op, test in TESTS.items()}


def where_schema() -> dict[str, Any]:
    """The JSON Schema of what `read_where` accepts."""
    one = {"$ref": "#/$defs/predicates"}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
