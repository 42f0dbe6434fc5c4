"""The property specification patterns of Dwyer, Avrunin and Corbett, for traces that end.

`FORMULAS` has the formula of each in each scope. Wherever it can, a formula looks back under one `G`, so that each
position is judged by itself and a call can be judged before it is made. `first r` and `open` stand for

    first r = r & !Y O r              the first r
    open    = !r S (q & !r)           after a q, with no r since

A p at the very position of its s counts as preceded and as answered; at the position of the r that ends a stretch it
is outside. After Q, `precedence` speaks of the first q, as all the others do. What a formula implies it from (the left
side of `->`) decides whether the rule is vacuous: patterns about a p are where no stretch has a p.

The scope of a pattern is the whole, or a stretch bounded by the events q and r:

| written                 | the pattern holds                                                      |
|-------------------------|------------------------------------------------------------------------|
| `global`                | over the whole                                                         |
| `{before: R}`           | up to the first r; where there is no r, nothing is required            |
| `{after: Q}`            | from the first q on                                                    |
| `{between: [Q, R]}`     | from each q to the next r; a stretch that no r closes is not judged    |
| `{after: Q, until: R}`  | from each q to the next r, or to the end                               |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from bylaw.rules.nodes import ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.params import Context, ParamType
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.temporal.events import Event, read_event

MOST_IN_STRETCH = 10
"""`bounded_count` between two events is written out event by event"""

_NO_CHAIN = "((!t & !r) S (!r & ({0} | Y ((!s & !r) S ({0} & !s & !r)))))"
"""since {0}, and with no r since, no t came after an s"""

FORMULAS: dict[str, dict[str, str]] = {
    "absence": {
        "global": "G !p",
        "before": "G (first r -> !Y O p)",
        "after": "G (O q -> !p)",
        "between": "G ((r & Y open) -> !Y (!r S (p & open)))",
        "after-until": "G (open -> !p)",
    },
    "existence": {
        "global": "F p",
        "before": "G (first r -> Y O p)",
        "after": "G ((q & !Y O q) -> F p)",
        "between": "G ((r & Y open) -> !Y ((!p & !r) S (q & !p & !r)))",
        "after-until": "G ((q & !r) -> (!r U (p & !r)))",
    },
    "universality": {
        "global": "G p",
        "before": "G (first r -> !Y O !p)",
        "after": "G (O q -> p)",
        "between": "G ((r & Y open) -> !Y (!r S (!p & open)))",
        "after-until": "G (open -> p)",
    },
    "precedence": {
        "global": "G (p -> O s)",
        "before": "G ((first r & Y O p) -> !Y O (p & !O s))",
        "after": "G ((p & O q) -> O (s & O q))",
        "between": "G ((r & Y (!r S (p & open))) -> !Y (!r S (p & ((!s & !r) S (q & !s & !r)))))",
        "after-until": "G ((p & open) -> !((!s & !r) S (q & !s & !r)))",
    },
    "response": {
        "global": "G (p -> F s)",
        "before": "G ((first r & Y O p) -> !Y (!s S (p & !s)))",
        "after": "G ((p & O q) -> F s)",
        "between": "G ((r & Y (!r S (p & open))) -> !Y ((!s & !r) S (p & !s & open)))",
        "after-until": "G ((p & open) -> (!r U (s & !r)))",
    },
    "chain_precedence": {
        "global": "G (p -> O (t & Y O s))",
        "before": "G ((first r & Y O p) -> !Y O (p & !O (t & Y O s)))",
        "after": "G ((p & O q) -> O (t & Y O (s & O q)))",
        "between": f"G ((r & Y (!r S (p & open))) -> !Y (!r S (p & {_NO_CHAIN.format('q')})))",
        "after-until": f"G ((p & open) -> !{_NO_CHAIN.format('q')})",
    },
    "chain_response": {
        "global": "G (p -> F (s & X F t))",
        "before": "G ((first r & Y O p) -> !Y (!t S (p | Y (!s S (p & !s)))))",
        "after": "G ((p & O q) -> F (s & X F t))",
        "between": f"G ((r & Y (!r S (p & open))) -> !Y {_NO_CHAIN.format('(p & open)')})",
        "after-until": "G ((p & open) -> (!r U (s & !r & X (!r U (t & !r)))))",
    },
    "bounded_count": {
        "global": "G (p -> count(p) <= n)",
        "before": "G ((first r & Y O p) -> count(p & !O r) <= n)",
        "after": "G ((p & O q) -> count(p & O q) <= n)",
        "between": "G ((r & Y (!r S (p & open))) -> !Y (!r S more))",
        "after-until": "G ((p & open) -> !more)",
    },
}

EVENTS: dict[str, tuple[str, ...]] = {
    "absence": ("p",),
    "existence": ("p",),
    "universality": ("p",),
    "precedence": ("s", "p"),
    "response": ("p", "s"),
    "chain_precedence": ("s", "t", "p"),
    "chain_response": ("p", "s", "t"),
    "bounded_count": ("p", "n"),
}
"""the parameters that each pattern takes beside `scope`"""

_ABBREVIATIONS = {"first r": "(r & !Y O r)", "open": "(!r S (q & !r))"}
_LETTER = re.compile(r"\b[pstqrn]\b")


def pattern_text(pattern: str, scope: str, *, count: int = 0) -> str:
    """The formula with letters for events."""
    text = FORMULAS[pattern][scope]
    if "more" in text:  # not otherwise: any count is fine there, and this grows with it
        text = text.replace("more", _more_than(count))
    for short, long in _ABBREVIATIONS.items():
        text = text.replace(short, long)
    return text


def write_pattern_formula(pattern: str, scope: str, events: Mapping[str, Event], *, count: int = 0) -> str:
    """The formula with the events themselves."""
    atoms = {letter: event.written() for letter, event in events.items()} | {"n": str(count)}
    return _LETTER.sub(lambda letter: atoms[letter[0]], pattern_text(pattern, scope, count=count))


_SENTENCES = {
    "absence": "no {p.words} is allowed",
    "existence": "there must be a {p.words}",
    "universality": "only {p.plural} are allowed",
    "precedence": "every {p.words} needs an earlier {s.words}",
    "response": "every {p.words} needs a later {s.words}",
    "chain_precedence": "every {p.words} needs an earlier {s.words} and then a {t.words}",
    "chain_response": "every {p.words} needs a later {s.words} and then a {t.words}",
    "bounded_count": "at most {n} {p.plural} are allowed",
}
_SCOPE_WORDS = {
    "global": "",
    "before": ", before the first {r.words}",
    "after": ", after the first {q.words}",
    "between": ", between a {q.words} and the next {r.words}",
    "after-until": ", after a {q.words} and until the next {r.words}",
}


def write_pattern_sentence(pattern: str, scope: str, events: Mapping[str, Event], *, count: int = 0) -> str:
    """The pattern as a sentence, for messages."""
    is_one = pattern == "bounded_count" and count == 1
    sentence = "at most one {p.words} is allowed" if is_one else _SENTENCES[pattern]
    return (sentence + _SCOPE_WORDS[scope]).format(n=count, **events)


def _more_than(count: int) -> str:
    """A p that is one too many since the q of an open stretch."""
    text = "(p & open)"
    for _ in range(count):
        text = f"(p & !r & Y (!r S {text}))"
    return text


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
    forms = [{key: pair if key == "between" else event for key in sorted(keys)} for keys in _FORMS]
    objects = [
        {"type": "object", "properties": one, "required": [*one], "additionalProperties": False} for one in forms
    ]
    return {"anyOf": [{"const": "global"}, *objects]}


SCOPE = ParamType(_read, _scope_schema(), plain=lambda scope: scope.plain)
