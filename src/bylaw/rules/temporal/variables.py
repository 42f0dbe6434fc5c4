"""Where variables are fixed and where they are seen.

`path = $v` fixes `$v` where nothing around it has, and compares otherwise. The right side of `->` and `&` sees what the
left side fixes; past an operator that looks ahead or back, a `!` or a `<->`, nothing gets out. Both sides of `|` that
fix the same variable count as one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from bylaw.model.temporal import And, Formula, Implies, Or, ResultOf, ToolIs, Variable, children
from bylaw.rules.temporal.parser import Parsed
from bylaw.rules.temporal.scanner import Spot


class Fixing(Struct):
    """A variable fixed in one place, or in several that count as one."""

    name: str
    spots: list[Spot]
    used: bool = False
    absorbed: bool = False
    """another one stands for it"""


_Fixed: TypeAlias = Mapping[str, Fixing]


class Scopes(Struct):
    """What `survey` found."""

    outer: dict[int, frozenset[str]] = field(default_factory=dict)
    """for each part, by its identity: the variables that are fixed outside it and before it"""
    fixings: list[Fixing] = field(default_factory=list)
    loose: list[Variable] = field(default_factory=list)
    """compared, but never fixed there"""


def survey(parsed: Parsed) -> Scopes:
    return _Survey(parsed).scopes()


def mentioned(formula: Formula) -> frozenset[str]:
    """The names of all variables in it."""
    return frozenset(variable.name for variable in variables(formula))


def variables(formula: Formula) -> Iterator[Variable]:
    """Every variable in it, as often as it stands there."""
    if isinstance(formula, ToolIs | ResultOf):
        yield from (test.value for test in formula.tests if isinstance(test.value, Variable))
    for child in children(formula):
        yield from variables(child)


class _Survey:
    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.found = Scopes()

    def scopes(self) -> Scopes:
        self.visit(self.parsed.formula, {})
        self.found.fixings = [fixing for fixing in self.found.fixings if not fixing.absorbed]
        return self.found

    def visit(self, formula: Formula, fixed: _Fixed) -> _Fixed:
        """What the formula fixes for what stands to its right."""
        self.found.outer[id(formula)] = frozenset(fixed)
        match formula:
            case ToolIs() | ResultOf():
                return self.atom(formula, fixed)
            case And(left=left, right=right):
                before = self.visit(left, fixed)
                return {**before, **self.visit(right, {**fixed, **before})}
            case Implies(left=left, right=right):
                self.visit(right, {**fixed, **self.visit(left, fixed)})
                return {}
            case Or(left=left, right=right):
                return _joined(self.visit(left, fixed), self.visit(right, fixed))
        for child in children(formula):
            self.visit(child, fixed)
        return {}

    def atom(self, atom: ToolIs | ResultOf, fixed: _Fixed) -> _Fixed:
        new: dict[str, Fixing] = {}
        for test in atom.tests:
            variable = test.value
            if not isinstance(variable, Variable):
                continue
            known = fixed.get(variable.name) or new.get(variable.name)
            if known:
                known.used = True
            elif test.op == "=":
                new[variable.name] = Fixing(variable.name, [self.parsed.nodes.spot(variable)])
            else:
                self.found.loose.append(variable)
        self.found.fixings.extend(new.values())
        return new


def _joined(left: _Fixed, right: _Fixed) -> _Fixed:
    """What both sides fix, as one."""
    shared = {name: fixing for name, fixing in left.items() if name in right}
    for name, fixing in shared.items():
        fixing.spots.extend(right[name].spots)
        fixing.used = fixing.used or right[name].used
        right[name].absorbed = True
    return shared
