"""The stretch of a trace that a pattern speaks of: `global`, or bounded by the events q and r.

| written                 | the pattern holds                                                      |
|-------------------------|------------------------------------------------------------------------|
| `global`                | over the whole                                                         |
| `{before: R}`           | up to the first r; where there is no r, nothing is asked               |
| `{after: Q}`            | from the first q on                                                    |
| `{between: [Q, R]}`     | from each q to the next r; a stretch that no r closes is not judged    |
| `{after: Q, until: R}`  | from each q to the next r, or to the end                               |
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.params import Context, ParamType
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.temporal.events import Event, read_event

_FORM = "write `global`, `{before: r}`, `{after: q}`, `{between: [q, r]}` or `{after: q, until: r}`"


class Scope(Struct, frozen=True):
    name: Literal["global", "before", "after", "between", "after-until"]
    events: dict[str, Event] = {}
    """q and r"""
    plain: Any = "global"


GLOBAL = Scope("global")


def _read(node: Node, name: str, context: Context) -> Scope | None:
    if isinstance(node, ScalarNode) and node.value == "global":
        return GLOBAL
    keys = frozenset(node.entries) if isinstance(node, MapNode) else frozenset[str]()
    if not isinstance(node, MapNode) or keys not in _FORMS:
        _refuse(node, context)
        return None
    kind, letters = _FORMS[keys]
    nodes = _bounds(node, context) if kind == "between" else [node.entries[key].value for key in sorted(keys)]
    events = [read_event(one, "scope", context) for one in nodes]
    if len(events) != len(letters) or None in events:
        return None
    return Scope(kind, {letter: event for letter, event in zip(letters, events, strict=True) if event}, plain(node))


_FORMS: dict[frozenset[str], tuple[Literal["before", "after", "between", "after-until"], str]] = {
    frozenset({"before"}): ("before", "r"),
    frozenset({"after"}): ("after", "q"),
    frozenset({"between"}): ("between", "qr"),
    frozenset({"after", "until"}): ("after-until", "qr"),
}


def _bounds(node: MapNode, context: Context) -> list[Node]:
    bounds = node.entries["between"].value
    if isinstance(bounds, ListNode) and len(bounds.items) == 2:
        return bounds.items
    report_wrong_type(bounds, "`between`", "two events", context.problems, help="write `between: [q, r]`")
    return []


def _refuse(node: Node, context: Context) -> None:
    rule_scope = isinstance(node, ScalarNode) and node.value in ("session", "trace")
    help = "move `scope` out of `params`, beside `kind`" if rule_scope else _FORM
    context.problems.error(
        code="unclear-temporal",
        message="the scope of a pattern is not written so",
        at=node.first_key if isinstance(node, MapNode) else node,
        help=help,
    )


def _scope_schema() -> dict[str, Any]:
    event = {"$ref": "#/$defs/event"}
    pair = {"type": "array", "items": event, "minItems": 2, "maxItems": 2}
    objects = [{key: pair if key == "between" else event for key in sorted(keys)} for keys in _FORMS]
    return {"anyOf": [{"const": "global"}, *(_object(properties) for properties in objects)]}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCOPE = ParamType(_read, _scope_schema(), plain=lambda scope: scope.plain)
