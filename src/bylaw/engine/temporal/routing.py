"""Which events a temporal rule has to see.

Positions at which every atom is false can be left out where they change nothing: no operator counts them (`X`, `N`,
`Y`, windows in events), none of the operators' memories moves at them, and no part fails at them. Then the index routes
only the tools that the formula names.
"""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.engine.monitor import Watches
from bylaw.engine.temporal.shape import Part, looks_ahead, walk, windows
from bylaw.engine.temporal.truth import all_of, any_of, negate
from bylaw.model.demand import Calls
from bylaw.model.temporal import (
    AgentIs,
    Ahead,
    And,
    Back,
    Constant,
    Count,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Pair,
    ResultOf,
    Says,
    Seen,
    StopsFor,
    ToolIs,
    UserSays,
    Window,
    children,
)

ALL = (Calls(("*",)),)


def watches(formula: Formula, parts: list[Part], over: str) -> Watches:
    found = list(walk(formula))
    messages = any(isinstance(f, UserSays) for f in found)
    results = tuple(Calls(f.names) for f in found if isinstance(f, ResultOf))
    if over == "turns":
        return Watches(responses=True, results=results, messages=messages)
    if not can_skip(formula, parts):
        return Watches(responses=True, calls=ALL, results=ALL, messages=messages)
    calls = tuple(Calls(f.names) for f in found if isinstance(f, ToolIs))
    about_responses = any(isinstance(f, StopsFor | Says | UserSays | Seen) for f in found)
    turns = any(window.unit == "turns" for window in windows(formula))
    return Watches(responses=about_responses or turns, calls=calls, results=results, messages=messages)


def can_skip(formula: Formula, parts: list[Part]) -> bool:
    """Whether positions at which every atom is false change nothing."""
    found = list(walk(formula))
    return (
        not any(isinstance(f, AgentIs) for f in found)
        and not any(isinstance(f, Ahead | Back) and f.op in "XNY" for f in found)
        and not any(window.unit == "events" for window in windows(formula))
        and not any(window.unit == "seconds" for window in _ahead_windows(formula))
        and all(map(_rests, found))
        and all(_passes_over(part) for part in parts)
    )


def _ahead_windows(formula: Formula) -> Iterator[Window]:
    looking = (f for f in walk(formula) if isinstance(f, Ahead) or (isinstance(f, Pair) and f.op != "S"))
    return (f.window for f in looking if f.window)


def _rests(formula: Formula) -> bool:
    """Whether an operator stays as it is where every atom is false."""
    match formula:
        case Back(op="O", of=of) | Count(of=of) | Ahead(op="F", of=of):
            return _calm(of) is False
        case Back(op="H", of=of) | Ahead(op="G", of=of):
            return _calm(of) is True
        case Pair(op="S" | "U", left=left, right=right):
            return _calm(left) is True and _calm(right) is False
        case Pair(op="R", left=left, right=right):
            return _calm(right) is True and _calm(left) is False
        case Pair(op="W", left=left, right=right):
            return _calm(left) is True and _calm(right) is False
        case _:
            return True


def _passes_over(part: Part) -> bool:
    if part.conditional and isinstance(part.body, Implies):
        return _calm(part.body.left) is False  # also not concerned there, or the rule would not know that it was
    if part.always:
        return _calm(part.body) is True
    top = part.body
    while isinstance(top, Not):
        top = top.of
    return looks_ahead(top) and isinstance(top, Ahead | Pair)


def _calm(formula: Formula) -> bool | None:
    """Its truth where every atom is false, whatever happened before and whatever follows."""
    match formula:
        case Constant(value=value):
            return value
        case Not(of=of):
            return negate(_calm(of))
        case And(left=left, right=right):
            return all_of((_calm(left), _calm(right)))
        case Or(left=left, right=right):
            return any_of((_calm(left), _calm(right)))
        case Implies(left=left, right=right):
            return any_of((negate(_calm(left)), _calm(right)))
        case Iff(left=left, right=right):
            one, two = _calm(left), _calm(right)
            return None if one is None or two is None else one == two
        case _:
            return None if children(formula) else False
