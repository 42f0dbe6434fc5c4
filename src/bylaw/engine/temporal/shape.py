"""The shape of a formula: where it looks, which variables it names and fixes, which parts it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from bylaw.engine.temporal.truth import all_of, any_of, negate
from bylaw.model.temporal import (
    Ahead,
    And,
    Atom,
    Back,
    Constant,
    Count,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Pair,
    Seen,
    Variable,
    Window,
    children,
)


def walk(formula: Formula) -> Iterator[Formula]:
    yield formula
    for child in children(formula):
        yield from walk(child)


def looks_ahead(formula: Formula) -> bool:
    return any(isinstance(f, Ahead) or (isinstance(f, Pair) and f.op != "S") for f in walk(formula))


def looks_back(formula: Formula) -> bool:
    return any(isinstance(f, Back | Seen | Count) or (isinstance(f, Pair) and f.op == "S") for f in walk(formula))


def windows(formula: Formula) -> Iterator[Window]:
    return (f.window for f in walk(formula) if isinstance(f, Ahead | Back | Pair | Seen | Count) and f.window)


def atoms(formula: Formula) -> list[Atom]:
    """Every atom once; constants are none."""
    found = (f for f in walk(formula) if not children(f) and not isinstance(f, Constant))
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def variables(formula: Formula) -> list[str]:
    """In the order in which they appear."""
    tests = (test for f in walk(formula) for test in getattr(f, "tests", ()))
    return list(dict.fromkeys(test.value.name for test in tests if isinstance(test.value, Variable)))


def fixes(formula: Formula) -> frozenset[str]:
    """The variables that have a value wherever the formula is true."""
    match formula:
        case And(left=left, right=right):
            return fixes(left) | fixes(right)
        case Or(left=left, right=right):
            return fixes(left) & fixes(right)
        case _:
            tests = getattr(formula, "tests", ())
            return frozenset(t.value.name for t in tests if isinstance(t.value, Variable) and t.op == "=")


def denied(formula: Formula) -> Formula:
    """Its negation, pushed inward as far as plain connectives go."""
    match formula:
        case Not(of=of):
            return of
        case And(left=left, right=right):
            return Implies(left, denied(right)) if fixes(left) else Or(denied(left), denied(right))
        case Or(left=left, right=right):
            return And(denied(left), denied(right))
        case Implies(left=left, right=right):
            return And(left, denied(right))
        case Constant(value=value):
            return Constant(not value, "false" if value else "true")
        case _:
            return Not(formula, f"!{formula.text}" if not children(formula) else f"!({formula.text})")


def evaluate(formula: Formula, leaf: Callable[[Formula], bool | None]) -> bool | None:
    """Kleene's truth of the connectives over what `leaf` says of atoms and temporal operators."""
    match formula:
        case Constant(value=value):
            return value
        case Not(of=of):
            return negate(evaluate(of, leaf))
        case And(left=left, right=right):
            return all_of((evaluate(left, leaf), evaluate(right, leaf)))
        case Or(left=left, right=right):
            return any_of((evaluate(left, leaf), evaluate(right, leaf)))
        case Implies(left=left, right=right):
            return any_of((negate(evaluate(left, leaf)), evaluate(right, leaf)))
        case Iff(left=left, right=right):
            one, two = evaluate(left, leaf), evaluate(right, leaf)
            return None if one is None or two is None else one == two
        case _:
            return leaf(formula)


def conjuncts(formula: Formula) -> list[Formula]:
    """`p & q & !(r | s)` as p, q, !r, !s."""
    match formula:
        case And(left=left, right=right) if not fixes(left):
            return [*conjuncts(left), *conjuncts(right)]
        case Not(of=Or() | Not() as of):
            return conjuncts(denied(of))
        case Not(of=Implies(left=left) as of) if not fixes(left):
            return conjuncts(denied(of))
        case _:
            return [formula]


class Part(Struct, frozen=True):
    """One conjunct of a rule's formula: judged at every position, or once."""

    body: Formula
    always: bool
    text: str
    conditional: bool = False
    """`G (p -> q)`: there are positions that it has nothing to say about"""
    words: str = ""
    """the rule as a sentence, where the user wrote it in words"""

    @property
    def shown(self) -> str:
        return self.words or f"`{self.text}`"


def parts_of(formula: Formula, words: str = "") -> list[Part]:
    return [_part(one, words) for one in conjuncts(formula)]


def _part(formula: Formula, words: str) -> Part:
    match formula:
        case Ahead(op="G", window=None, of=of):
            return Part(of, True, formula.text, isinstance(of, Implies) and not looks_ahead(of.left), words)
        case Not(of=Ahead(op="F", window=None, of=of)):
            return Part(denied(of), True, formula.text, False, words)
        case _:
            return Part(formula, False, formula.text, False, words)


def yesterdays(formula: Formula) -> int:
    """How many positions back `Y` reaches, one inside the other."""
    deepest = max((yesterdays(child) for child in children(formula)), default=0)
    return deepest + (isinstance(formula, Back) and formula.op == "Y")
