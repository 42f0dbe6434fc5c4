"""Where variables are fixed and where they are visible, and whether the memory that they need is bounded.

`path = $v` fixes `$v` where nothing around it has, and compares otherwise. The right side of `->` and `&` sees what the
left side fixes; past an operator that looks ahead or back, a `!` or a `<->`, nothing gets out. Both sides of `|` that
fix the same variable count as one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from bylaw.model.temporal import (
    Ahead,
    And,
    Back,
    Count,
    Formula,
    Implies,
    Not,
    Or,
    Pair,
    ResultOf,
    ToolIs,
    Variable,
    children,
    is_ahead,
    is_back,
    variables_in,
    walk,
)
from bylaw.rules.temporal.parser import Parsed
from bylaw.rules.temporal.scanner import FormulaSpan


class VariableBinding(Struct):
    """A variable fixed in one place, or in several that count as one."""

    name: str
    spots: list[FormulaSpan]
    used: bool = False
    absorbed: bool = False
    """another one stands for it"""


_Fixed: TypeAlias = Mapping[str, VariableBinding]


class Scopes(Struct):
    """What `survey` found."""

    outer: dict[int, frozenset[str]] = field(default_factory=dict)
    """for each part, by its identity: the variables that are fixed outside it and before it"""
    fixings: list[VariableBinding] = field(default_factory=list)
    loose: list[Variable] = field(default_factory=list)
    """compared, but never fixed there"""


def survey(parsed: Parsed) -> Scopes:
    found = Scopes()
    _visit(parsed.formula, {}, parsed, found)
    found.fixings = [fixing for fixing in found.fixings if not fixing.absorbed]
    return found


def mentioned_variables(formula: Formula) -> frozenset[str]:
    """The names of all variables in it."""
    return frozenset(variable.name for variable in variables_in(formula))


def _visit(formula: Formula, fixed: _Fixed, parsed: Parsed, found: Scopes) -> _Fixed:
    """The variables that the formula fixes for the formulas to its right."""
    found.outer[id(formula)] = frozenset(fixed)
    match formula:
        case ToolIs() | ResultOf():
            return _visit_atom(formula, fixed, parsed, found)
        case And(left=left, right=right):
            before = _visit(left, fixed, parsed, found)
            return {**before, **_visit(right, {**fixed, **before}, parsed, found)}
        case Implies(left=left, right=right):
            _visit(right, {**fixed, **_visit(left, fixed, parsed, found)}, parsed, found)
            return {}
        case Or(left=left, right=right):
            return _join_bindings(_visit(left, fixed, parsed, found), _visit(right, fixed, parsed, found))
    for child in children(formula):
        _visit(child, fixed, parsed, found)
    return {}


def _visit_atom(atom: ToolIs | ResultOf, fixed: _Fixed, parsed: Parsed, found: Scopes) -> _Fixed:
    new: dict[str, VariableBinding] = {}
    for test in atom.tests:
        variable = test.value
        if not isinstance(variable, Variable):
            continue
        known = fixed.get(variable.name) or new.get(variable.name)
        if known:
            known.used = True
        elif test.op == "=":
            new[variable.name] = VariableBinding(variable.name, [parsed.nodes.spot(variable)])
        else:
            found.loose.append(variable)
    found.fixings.extend(new.values())
    return new


def _join_bindings(left: _Fixed, right: _Fixed) -> _Fixed:
    """The variables that both sides fix, joined."""
    shared = {name: fixing for name, fixing in left.items() if name in right}
    for name, fixing in shared.items():
        fixing.spots.extend(right[name].spots)
        fixing.used = fixing.used or right[name].used
        right[name].absorbed = True
    return shared


# -- boundedness -------------------------------------------------------------------------------------------------------

# Whether the memory of an operator that looks back is bounded.
#
# `O b` where `b` mentions a variable fixed outside remembers, for each value, whether `b` was true with it. That needs
# a `b` that *says the value*: an atom with `path = $v`, which tells for one event what the value must have been. A
# formula that is true for all values but some, such as `!tool(x, args.id = $v)`, needs memory for every possible value.
#
# | operator       | is fine when, for the variables fixed outside                                             |
# |----------------|-------------------------------------------------------------------------------------------|
# | `O b`, `count` | `b` says them                                                                             |
# | `H b`          | `!b` says them, for `H b` is `!O !b`                                                      |
# | `p S b`        | `b` says them, and `p` has none, or is `!c` where `c` says the same, or a `&` of such     |
# | `Y b`, `seen`  | always                                                                                    |
#
# | formula  | says them when                                                                                  |
# |----------|-------------------------------------------------------------------------------------------------|
# | atom     | it has `path = $v`; others may be compared otherwise (`>= $a`), except inside `count`           |
# | `x & y`  | `x` says them with `=`, all that `y` mentions included, and `y` does not look ahead             |
# | `x \| y` | both say the same with `=`                                                                      |


def check_boundedness(parsed: Parsed, scopes: Scopes) -> None:
    for formula in filter(is_back, walk(parsed.formula)):
        _check(formula, scopes.outer[id(formula)], parsed)


def _check(formula: Formula, outer: frozenset[str], parsed: Parsed) -> None:
    involved = mentioned_variables(formula) & outer
    ahead = next(filter(is_ahead, walk(formula)), None)
    if ahead and (involved or getattr(formula, "window", None) or isinstance(formula, Count)):
        _refuse_ahead(formula, ahead, involved, parsed)
    elif involved and (unbounded := _find_unbounded(formula, outer)):
        message = f"what `{_name(formula)}` would have to remember about {_names(involved)} here has no bound"
        help = _unbounded_help(formula, unbounded, min(involved))
        parsed.report.error(parsed.nodes.spot(unbounded), code="variable-not-kept", message=message, help=help)


def _find_unbounded(formula: Formula, outer: frozenset[str]) -> Formula | None:
    """The operand that would have to be remembered without bound."""
    match formula:
        case Back(op="O", of=of) if _says(of, outer) is None:
            return of
        case Back(op="H", of=of) if _says(Not(of), outer) is None:
            return of
        case Count(of=of) if _says(of, outer, only_equal=True) is None:
            return of
        case Pair(op="S", left=left, right=right):
            said = _says(right, outer) if mentioned_variables(right) & outer else frozenset[str]()
            if said is None:
                return right
            return None if all(_lets_through(part, said, outer) for part in _conjuncts(left)) else left
        case _:
            return None


def _says(formula: Formula, outer: frozenset[str], *, only_equal: bool = False) -> frozenset[str] | None:
    """The outer variables whose value the formula says with `=`; None where it does not say what it mentions."""
    match _inward(formula):
        case ToolIs(tests=tests) | ResultOf(tests=tests):
            compared = [(t.value.name, t.op) for t in tests if isinstance(t.value, Variable) and t.value.name in outer]
            if only_equal and any(op != "=" for _, op in compared):
                return None
            return frozenset(name for name, op in compared if op == "=")
        case And(left=left, right=right):
            said = _says(left, outer, only_equal=only_equal)
            return said if said is not None and mentioned_variables(right) & outer <= said else None
        case Or(left=left, right=right):
            said = _says(left, outer, only_equal=only_equal)
            return said if said == _says(right, outer, only_equal=only_equal) else None
        case _:
            return None


def _lets_through(formula: Formula, said: frozenset[str], outer: frozenset[str]) -> bool:
    """Whether the left side of `S` may be this: what ends the wait for one value must say that value."""
    if not mentioned_variables(formula) & outer:
        return True
    if not isinstance(formula, Not) or mentioned_variables(formula) & outer != said:
        return False
    return _says(formula.of, outer, only_equal=True) == said


def _inward(formula: Formula) -> Formula:
    """The same, with negations pushed inward as far as an `&` may come out."""
    match formula:
        case Not(of=Not(of=of)):
            return _inward(of)
        case Not(of=Implies(left=left, right=right)):
            return And(left, Not(right))
        case Not(of=Or(left=left, right=right)):
            return And(Not(left), Not(right))
        case _:
            return formula


def _conjuncts(formula: Formula) -> Iterator[Formula]:
    inward = _inward(formula)
    if isinstance(inward, And):
        yield from _conjuncts(inward.left)
        yield from _conjuncts(inward.right)
    else:
        yield inward


def _refuse_ahead(formula: Formula, ahead: Formula, involved: frozenset[str], parsed: Parsed) -> None:
    inner, outside = _name(ahead), _name(formula)
    reason = f"it compares with {_names(involved)}"
    if isinstance(formula, Count):
        reason = "`count` counts only what is settled"
    elif getattr(formula, "window", None):
        reason = f"`{outside}` has a window"
    parsed.report.error(
        parsed.nodes.spot(ahead),
        code="ahead-inside-back",
        message=f"`{inner}` looks ahead inside `{outside}`, and {reason}",
        help=f"say it with operators that look back, or put `{inner}` outside `{outside}`",
    )


def _unbounded_help(formula: Formula, unbounded: Formula, variable: str) -> str:
    match formula:
        case Back(op="H"):
            return f"begin with what says the value: `H (tool(x, args.path = ${variable}) -> …)`"
        case Pair(left=left) if left is unbounded:
            return f"left of `S` only `!tool(x, args.path = ${variable})` will do, with the variables of the right side"
        case _:
            return f"begin with what says the value: `{_name(formula)} (tool(x, args.path = ${variable}) & …)`"


def _name(formula: Formula) -> str:
    return str(getattr(formula, "op", "")) if isinstance(formula, Ahead | Back | Pair) else "count"


def _names(names: frozenset[str]) -> str:
    return " and ".join(f"`${name}`" for name in sorted(names))
