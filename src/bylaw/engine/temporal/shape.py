"""The shape of a formula: its direction, variables and conjuncts, the events it needs, and whether a guard can prevent
violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from bylaw.engine.monitor import Watches
from bylaw.engine.temporal.truth import all_of, any_of, negate
from bylaw.model.demand import Calls
from bylaw.model.temporal import (
    AgentIs,
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
    ResultOf,
    Says,
    Seen,
    StopsFor,
    ToolIs,
    UserSays,
    Variable,
    Window,
    children,
    is_ahead,
    is_back,
    variables_in,
    walk,
)


def looks_ahead(formula: Formula) -> bool:
    return any(map(is_ahead, walk(formula)))


def looks_back(formula: Formula) -> bool:
    return any(map(is_back, walk(formula)))


def windows(formula: Formula) -> Iterator[Window]:
    return (f.window for f in walk(formula) if isinstance(f, Ahead | Back | Pair | Seen | Count) and f.window)


def atoms(formula: Formula) -> list[Atom]:
    """Every atom once; constants are none."""
    found = (f for f in walk(formula) if not children(f) and not isinstance(f, Constant))
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def variables(formula: Formula) -> list[str]:
    """In the order in which they appear."""
    return list(dict.fromkeys(variable.name for variable in variables_in(formula)))


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


def negate_formula(formula: Formula) -> Formula:
    """Its negation, pushed inward as far as plain connectives go."""
    match formula:
        case Not(of=of):
            return of
        case And(left=left, right=right):
            return (
                Implies(left, negate_formula(right)) if fixes(left) else Or(negate_formula(left), negate_formula(right))
            )
        case Or(left=left, right=right):
            return And(negate_formula(left), negate_formula(right))
        case Implies(left=left, right=right):
            return And(left, negate_formula(right))
        case Constant(value=value):
            return Constant(not value, "false" if value else "true")
        case _:
            return Not(formula, f"!{formula.text}" if not children(formula) else f"!({formula.text})")


def evaluate(formula: Formula, leaf: Callable[[Formula], bool | None]) -> bool | None:
    """Kleene's truth of the connectives; `leaf` gives the truth of atoms and temporal operators."""
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
            return conjuncts(negate_formula(of))
        case Not(of=Implies(left=left) as of) if not fixes(left):
            return conjuncts(negate_formula(of))
        case _:
            return [formula]


class Conjunct(Struct, frozen=True):
    """One conjunct of a rule's formula: judged at every position, or once."""

    body: Formula
    always: bool
    text: str
    conditional: bool = False
    """`G (p -> q)`: there are positions that it has nothing to say about"""
    words: str = ""
    """the rule as a sentence, where the user wrote it in words"""
    message: str = ""
    """what went wrong, where the user wrote that"""

    @property
    def doubt(self) -> str:
        if self.message:
            return f"cannot exclude that {self.message}"
        return f"cannot tell whether this holds: {self.words or f'`{self.text}`'}"


def parts_of(formula: Formula, words: str = "", message: str = "") -> list[Conjunct]:
    parts: list[Conjunct] = []
    for one in conjuncts(formula):
        body, always, conditional = one, False, False
        match one:
            case Ahead(op="G", window=None, of=of):
                body, always, conditional = of, True, isinstance(of, Implies) and not looks_ahead(of.left)
            case Not(of=Ahead(op="F", window=None, of=of)):
                body, always = negate_formula(of), True
        parts.append(Conjunct(body, always, one.text, conditional, words, message))
    return parts


def yesterdays(formula: Formula) -> int:
    """How many positions back `Y` reaches, one inside the other."""
    deepest = max((yesterdays(child) for child in children(formula)), default=0)
    return deepest + (isinstance(formula, Back) and formula.op == "Y")


# -- events that a rule has to see -------------------------------------------------------------------------------------

# Positions at which every atom is false can be left out where they change nothing: no operator counts them (`X`, `N`,
# `Y`, windows in events), none of the operators' memories moves at them, and no part fails at them. Then the index
# routes only the tools that the formula names.

ALL = (Calls(("*",)),)


def watches(formula: Formula, parts: list[Conjunct], over: str) -> Watches:
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


def can_skip(formula: Formula, parts: list[Conjunct]) -> bool:
    """Whether positions at which every atom is false change nothing."""
    found = list(walk(formula))
    return (
        not any(isinstance(f, AgentIs) for f in found)
        and not any(isinstance(f, Ahead | Back) and f.op in "XNY" for f in found)
        and not any(window.unit == "events" for window in windows(formula))
        and not any(is_ahead(f) and f.window and f.window.unit == "seconds" for f in found)  # type: ignore[union-attr]
        and all(map(_is_stable, found))
        and all(_passes_over(part) for part in parts)
    )


def _is_stable(formula: Formula) -> bool:
    """Whether an operator stays as it is where every atom is false."""
    match formula:
        case Back(op="O", of=of) | Count(of=of) | Ahead(op="F", of=of):
            return _calm(of) is False
        case Back(op="H", of=of) | Ahead(op="G", of=of):
            return _calm(of) is True
        case Pair(op="S" | "U" | "W", left=left, right=right):
            return _calm(left) is True and _calm(right) is False
        case Pair(op="R", left=left, right=right):
            return _calm(right) is True and _calm(left) is False
        case _:
            return True


def _passes_over(part: Conjunct) -> bool:
    if part.conditional and isinstance(part.body, Implies):
        return _calm(part.body.left) is False  # also not concerned there, or the rule would not know that it was
    if part.always:
        return _calm(part.body) is True
    top = part.body
    while isinstance(top, Not):
        top = top.of
    return looks_ahead(top) and isinstance(top, Ahead | Pair)


def _calm(formula: Formula) -> bool | None:
    """Its truth where every atom is false, if that is the same for every past and future."""
    return evaluate(formula, lambda operator: None if children(operator) else False)


# -- prevention by a live guard ----------------------------------------------------------------------------------------

# A part is *preventive* if it can become false only at a tool call, *closing* if only at the end, else *detective*.


def only_at_calls(formula: Formula) -> bool:
    """Whether nothing but a tool call can make it false."""
    if not looks_ahead(formula):
        # its truth at any response or result, whatever the past
        return evaluate(formula, lambda operator: False if isinstance(operator, ToolIs) else None) is True
    match formula:
        case Not(of=of):
            return _is_negation_safe(of)
        case And(left=left, right=right):
            return only_at_calls(left) and only_at_calls(right)
        case Or(left=left, right=right):
            return _is_choice_safe(left, right)
        case Implies(left=left, right=right):
            return _is_choice_safe(negate_formula(left), right)
        case Ahead(op="G" | "N", of=of) | Pair(op="R", right=of):
            return only_at_calls(of)
        case Pair(op="W", left=left, right=right):
            return only_at_calls(Or(left, right))
        case _:
            return False


def _is_negation_safe(formula: Formula) -> bool:
    match formula:
        case Ahead(op="F" | "X", of=of):
            return only_at_calls(negate_formula(of))
        case Pair(op="U", right=right):
            return only_at_calls(negate_formula(right))
        case And() | Or() | Implies() | Not():
            return only_at_calls(negate_formula(formula))
        case _:
            return False


def _is_choice_safe(left: Formula, right: Formula) -> bool:
    """False once both are; what only looks at its own position is decided before the other."""
    if only_at_calls(left) and only_at_calls(right):
        return True
    return (not looks_ahead(left) and only_at_calls(right)) or (not looks_ahead(right) and only_at_calls(left))


def only_at_end(formula: Formula) -> bool:
    """Whether nothing but the end can make it false."""
    match formula:
        case Constant(value=value):
            return value
        case Ahead(op="F", window=None):
            return True
        case Pair(op="U", left=Constant(value=True), window=None):
            return True
        case And(left=left, right=right):
            return only_at_end(left) and only_at_end(right)
        case Or(left=left, right=right):
            return only_at_end(left) or only_at_end(right)
        case Implies(left=left, right=right):
            return only_at_end(negate_formula(left)) or only_at_end(right)
        case Ahead(op="G" | "N", of=of):
            return only_at_end(of)
        case Not(of=Ahead(op="G", window=None)):
            return True
        case Not(of=And() | Or() | Implies() | Not() as of):
            return only_at_end(negate_formula(of))
        case _:
            return False
