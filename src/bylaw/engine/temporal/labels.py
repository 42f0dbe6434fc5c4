"""What a live guard can do about a temporal rule, told from the shape of its formula.

A part is *preventive* if it can become false only at a tool call, *closing* if only at the end, *detective* otherwise.
"""

from __future__ import annotations

from bylaw.engine.temporal.shape import Part, denied, looks_ahead
from bylaw.engine.temporal.truth import all_of, any_of, negate
from bylaw.model.temporal import Ahead, And, Constant, Formula, Implies, Not, Or, Pair, ToolIs


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
    """Its truth at a response or a result, whatever that holds and whatever happened before."""
    match formula:
        case ToolIs():
            return False
        case Constant(value=value):
            return value
        case Not(of=of):
            return negate(_away_from_calls(of))
        case And(left=left, right=right):
            return all_of((_away_from_calls(left), _away_from_calls(right)))
        case Or(left=left, right=right):
            return any_of((_away_from_calls(left), _away_from_calls(right)))
        case Implies(left=left, right=right):
            return any_of((negate(_away_from_calls(left)), _away_from_calls(right)))
        case _:
            return None


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
