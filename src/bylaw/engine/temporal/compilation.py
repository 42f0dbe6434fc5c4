"""What a formula is compiled into: functions of a frame, and what the parts of a formula share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.engine.temporal.frame import Frame
from bylaw.engine.temporal.shape import atoms, variables
from bylaw.engine.temporal.truth import Sigma, Truth, negate
from bylaw.engine.temporal.variables import Found
from bylaw.model.temporal import Formula, Window

Value: TypeAlias = Callable[[Frame, Sigma], Truth]
Settled: TypeAlias = Callable[[Frame], bool | None]
"""the truth that a frame's memory settles for that position and for all that could still come"""
Matches: TypeAlias = Callable[[Frame, Sigma], list[Found]]
"""every way in which a formula is not false here: the variables it fixes, its truth, and what remains to compare"""
Update: TypeAlias = Callable[[Frame, Any], Any]
"""(frame, old memory of the operator) → new memory"""


class Slot(Struct, frozen=True):
    initial: Any
    update: Update


class TableSlot(Struct, frozen=True):
    slot: int
    key_of: Callable[[Sigma], tuple[Any, ...]]
    window: Window | None


class Lookahead(Struct, frozen=True):
    """An operator that looks ahead."""

    op: str
    left: Value
    right: Value
    window: Window | None
    at_end: bool
    """what it is where nothing follows"""
    mentions: frozenset[int]
    """variables; the others do not make two waits different"""
    carried: bool = False
    """inside an operator that looks back, which hands over waits that began at earlier positions"""


class Compilation(ABC):
    """A formula while it is compiled: what its parts share."""

    def __init__(self, formula: Formula) -> None:
        self.atoms = atoms(formula)
        self.variables = variables(formula)
        self.unset: Sigma = (None,) * len(self.variables)
        self.slots: list[Slot] = []
        self.ahead: list[Lookahead] = []
        self.back_depth = 0
        """operators that look back, around the part that is being built"""
        self.tables: dict[Formula, TableSlot] = {}
        """for messages: where an operator that looks back stores what it saw"""
        self.settlers: dict[Formula, Settled] = {}
        self.values: dict[Formula, Value] = {}
        self.matchers: dict[Formula, Matches] = {}
        """for messages too: how each part was compiled"""
        self._numbers = {atom: i for i, atom in enumerate(self.atoms)}
        self.variable_numbers = {name: i for i, name in enumerate(self.variables)}

    @abstractmethod
    def build(self, formula: Formula, positive: bool = True, scope: frozenset[str] = frozenset()) -> Value:
        """`scope`: variables that have a value wherever this is evaluated."""

    @abstractmethod
    def matches(self, formula: Formula, scope: frozenset[str]) -> Matches: ...

    @abstractmethod
    def move(self, residual: Truth, frame: Frame) -> Truth: ...

    def add_slot(self, initial: Any, update: Update) -> int:
        self.slots.append(Slot(initial, update))
        return len(self.slots) - 1


def true(frame: Frame, sigma: Sigma) -> Truth:
    return True


def false(frame: Frame, sigma: Sigma) -> Truth:
    return False


def negated(value: Value) -> Value:
    return lambda frame, sigma: negate(value(frame, sigma))  # type: ignore[arg-type]
