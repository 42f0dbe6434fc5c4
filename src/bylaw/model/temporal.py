"""A temporal formula as data: linear temporal logic on finite traces, looking ahead and looking back.

| atom                | true at                                                        |
|---------------------|----------------------------------------------------------------|
| `ToolIs`            | a tool call with this name whose arguments pass the tests      |
| `ResultOf`          | a tool result of such a call                                   |
| `StopsFor`          | a response that ended for this reason                          |
| `Says`              | a response with this text                                      |
| `UserSays`          | a response to a user who said this                             |
| `AgentIs`           | any event of this agent                                        |
| `Constant`          | everywhere or nowhere                                          |

Operators come in a shape for each arity: `Ahead` and `Back` look from one position along the trace, `Pair` holds two
formulas. What they mean is in `docs/reference/temporal.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Unit: TypeAlias = Literal["events", "turns", "seconds"]


class TextHas(Struct, frozen=True):
    """Text that contains this."""

    text: str
    regex: bool = False
    ignore_case: bool = False


class Window(Struct, frozen=True):
    """How far an operator looks, its own position included: `[<=10m]`, `[<=3t]`, `[<=5]`."""

    bound: float
    unit: Unit
    text: str
    """as written, without the brackets"""


class Variable(Struct, frozen=True):
    """A value that one event fixes and another is compared with: `$order`."""

    name: str


class Linear(Struct, frozen=True):
    """The linear function applied to a variable before the comparison: `scale * $v / divisor + shift`."""

    scale: float = 1
    shift: float = 0
    divisor: float = 1
    in_time: bool = False
    """`shift` is in seconds, and the variable is a date: `$today - 30d`"""


TestOperator: TypeAlias = Literal[
    "=",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
    "in",
    "not in",
    "contains",
    "not contains",
    "matches",
    "starts with",
    "ends with",
    "present",
    "missing",
]
"""how a recorded value compares with a wanted one, for `when`, temporal formulas and guard predicates alike"""


class Test(Struct, frozen=True):
    """One comparison inside an atom: `args.amount >= 500`, `result.status = "ok"`, `args.order_id = $o`."""

    root: Literal["args", "result", "error"]
    path: tuple[str | None, ...]
    """keys and list indices below the root; None is the wildcard `*`"""
    op: TestOperator
    value: Any = None
    """a JSON value, or a Variable; None with `present` and `missing`"""
    text: str = ""
    """as written"""
    linear: Linear | None = None
    """computed from the variable, with an ordering operator"""

    def __hash__(self) -> int:
        return hash((self.root, self.path, self.op, self.text))  # the value may be a list


class ToolIs(Struct, frozen=True):
    names: tuple[str, ...]
    tests: tuple[Test, ...] = ()
    text: str = ""


class ResultOf(Struct, frozen=True):
    names: tuple[str, ...]
    tests: tuple[Test, ...] = ()
    text: str = ""


class StopsFor(Struct, frozen=True):
    reason: str
    text: str = ""


class Says(Struct, frozen=True):
    probe: TextHas
    text: str = ""


class UserSays(Struct, frozen=True):
    probe: TextHas
    text: str = ""


class AgentIs(Struct, frozen=True):
    names: tuple[str, ...]
    text: str = ""


class Constant(Struct, frozen=True):
    value: bool
    text: str = ""


Atom: TypeAlias = ToolIs | ResultOf | StopsFor | Says | UserSays | AgentIs | Constant


class Not(Struct, frozen=True):
    of: Formula
    text: str = ""


class And(Struct, frozen=True):
    left: Formula
    right: Formula
    """sees the variables that `left` fixes"""
    text: str = ""


class Or(Struct, frozen=True):
    left: Formula
    right: Formula
    text: str = ""


class Implies(Struct, frozen=True):
    left: Formula
    right: Formula
    """sees the variables that `left` fixes"""
    text: str = ""


class Iff(Struct, frozen=True):
    left: Formula
    right: Formula
    text: str = ""


class Ahead(Struct, frozen=True):
    """`X` next, `N` next if there is one, `F` at some time, `G` at all times."""

    op: Literal["X", "N", "F", "G"]
    of: Formula
    window: Window | None = None
    text: str = ""


class Back(Struct, frozen=True):
    """`Y` yesterday, `O` once, `H` always so far."""

    op: Literal["Y", "O", "H"]
    of: Formula
    window: Window | None = None
    text: str = ""


class Pair(Struct, frozen=True):
    """`U` until, `W` until or for good, `R` releases, `S` since."""

    op: Literal["U", "W", "R", "S"]
    left: Formula
    right: Formula
    window: Window | None = None
    text: str = ""


class Seen(Struct, frozen=True):
    """The model had such a result in its input when it answered the turn of this position."""

    of: ResultOf
    window: Window | None = None
    text: str = ""


class Count(Struct, frozen=True):
    """How often the formula held so far, this position included, compared with a number: `count[<=5m](tool(x)) > 3`."""

    of: Formula
    op: Literal["=", "!=", ">", ">=", "<", "<="]
    number: int
    window: Window | None = None
    text: str = ""


Formula: TypeAlias = Atom | Not | And | Or | Implies | Iff | Ahead | Back | Pair | Seen | Count


_WITH_TWO, _WITH_ONE = frozenset((And, Or, Implies, Iff, Pair)), frozenset((Not, Ahead, Back, Seen, Count))


def children(formula: Formula) -> tuple[Formula, ...]:
    """The formulas directly inside. Called often: looking up the type takes a tenth of the time of `isinstance`."""
    kind = type(formula)
    if kind in _WITH_TWO:
        return formula.left, formula.right  # type: ignore[union-attr]
    return (formula.of,) if kind in _WITH_ONE else ()  # type: ignore[union-attr]


def walk(formula: Formula) -> Iterator[Formula]:
    """The formula and every formula inside it, from left to right."""
    waiting = [formula]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(children(one)))


def variables_in(formula: Formula) -> Iterator[Variable]:
    """Every variable in it, as often as it stands there."""
    atoms = (one for one in walk(formula) if isinstance(one, ToolIs | ResultOf))
    return (test.value for atom in atoms for test in atom.tests if isinstance(test.value, Variable))


def is_ahead(formula: Formula) -> bool:
    """Whether it is an operator that looks ahead."""
    return isinstance(formula, Ahead) or (isinstance(formula, Pair) and formula.op != "S")


def is_back(formula: Formula) -> bool:
    """Whether it is an operator that looks back."""
    return isinstance(formula, Back | Seen | Count) or (isinstance(formula, Pair) and formula.op == "S")
