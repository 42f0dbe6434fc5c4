"""What the shape of a formula tells: which events the rule has to see, and what a live guard can do about it.

Positions at which every atom is false can be left out where they change nothing: no operator counts them (`X`, `N`,
`Y`, windows in events), none of the operators' memories moves at them, and no part fails at them. Then the index routes
only the tools that the formula names.

A part is *preventive* if it can become false only at a tool call, *closing* if only at the end, *detective* otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.engine.monitor import Watches
from bylaw.engine.temporal.shape import Part, denied, evaluate, looks_ahead, walk, windows
from bylaw.model.demand import Calls
from bylaw.model.temporal import (
    AgentIs,
    Ahead,
    And,
    Back,
    Constant,
    Count,
    Formula,
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
    """Its truth where every atom is false, independent of what happened before and what follows."""
    return evaluate(formula, lambda operator: None if children(operator) else False)


# -- what a live guard can do -----------------------------------------------------------------------------------------


def only_at_calls(part: Part) -> bool:
    return _safe(part.body)


def only_at_end(part: Part) -> bool:
    return _late(part.body)


def _safe(formula: Formula) -> bool:
    """Whether nothing but a tool call can make it false."""
    if not looks_ahead(formula):
        return _away_from_calls(formula) is True
    match formula:
        case Not(of=of):
            return _safe_denied(of)
        case And(left=left, right=right):
            return _safe(left) and _safe(right)
        case Or(left=left, right=right):
            return _safe_choice(left, right)
        case Implies(left=left, right=right):
            return _safe_choice(denied(left), right)
        case Ahead(op="G" | "N", of=of) | Pair(op="R", right=of):
            return _safe(of)
        case Pair(op="W", left=left, right=right):
            return _safe(Or(left, right))
        case _:
            return False


def _safe_denied(formula: Formula) -> bool:
    match formula:
        case Ahead(op="F" | "X", of=of):
            return _safe(denied(of))
        case Pair(op="U", right=right):
            return _safe(denied(right))
        case And() | Or() | Implies() | Not():
            return _safe(denied(formula))
        case _:
            return False


def _safe_choice(left: Formula, right: Formula) -> bool:
    """False once both are; what only looks at its own position is decided before the other."""
    if _safe(left) and _safe(right):
        return True
    return (not looks_ahead(left) and _safe(right)) or (not looks_ahead(right) and _safe(left))


def _away_from_calls(formula: Formula) -> bool | None:
    """Its truth at any response or result, independent of what happened before."""
    return evaluate(formula, lambda operator: False if isinstance(operator, ToolIs) else None)


def _late(formula: Formula) -> bool:
    """Whether nothing but the end can make it false."""
    match formula:
        case Constant(value=value):
            return value
        case Ahead(op="F", window=None):
            return True
        case Pair(op="U", left=Constant(value=True), window=None):
            return True
        case And(left=left, right=right):
            return _late(left) and _late(right)
        case Or(left=left, right=right):
            return _late(left) or _late(right)
        case Implies(left=left, right=right):
            return _late(denied(left)) or _late(right)
        case Ahead(op="G" | "N", of=of):
            return _late(of)
        case Not(of=Ahead(op="G", window=None)):
            return True
        case Not(of=And() | Or() | Implies() | Not() as of):
            return _late(denied(of))
        case _:
            return False
