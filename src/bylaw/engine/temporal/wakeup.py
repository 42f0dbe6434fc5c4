"""Which open entries an event can change, by its atom values alone."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.compilation import Lookahead
from bylaw.engine.temporal.frame import START, Frame
from bylaw.engine.temporal.pending import Address
from bylaw.engine.temporal.shape import Part, fixes, looks_ahead, looks_back, walk
from bylaw.engine.temporal.truth import Residual, Wait, waits
from bylaw.engine.temporal.variables import UNKNOWN_KEY, AtomValues, Hit
from bylaw.model.temporal import Ahead, And, Formula, Implies, Pair, Variable, children


class Keyed(Struct, frozen=True):
    """An atom that can only concern entries with its own values."""

    atom: int
    positions: tuple[int, ...]
    """which of a Hit's values make the key"""


class Waker:
    """One part's way from atom_values to entries."""

    def __init__(self, number: int, part: Part, builder: Builder) -> None:
        self._number = number
        looking = [f for f in walk(part.body) if isinstance(f, Ahead) or (isinstance(f, Pair) and f.op != "S")]
        self._always = any(looks_back(formula) for formula in looking)
        awaited: list[Formula] = list(dict.fromkeys(a for f in looking for a in _atoms(f) if a in builder.atoms))
        self._index = _index_variables(part, awaited)
        numbers = {name: i for i, name in enumerate(builder.variables)}
        self._variables = tuple(numbers[name] for name in self._index)
        self._hot: list[int] = []
        self._keyed: list[Keyed] = []
        for atom in awaited:
            self._register(atom, builder)
        self._quiet = [_is_quiet(i, builder) for i in range(len(builder.ahead))]

    def _register(self, atom: Formula, builder: Builder) -> None:
        number = builder.atoms.index(atom)  # type: ignore[arg-type]
        tests = [t for t in getattr(atom, "tests", ()) if isinstance(t.value, Variable)]
        names = [t.value.name if t.op == "=" else None for t in tests]
        if self._index and all(name in names for name in self._index):
            self._keyed.append(Keyed(number, tuple(names.index(name) for name in self._index)))
        else:
            self._hot.append(number)

    def address(self, residual: Residual) -> Address:
        """Where an entry waits; None where every event may change it."""
        found = waits(residual)
        if self._always or not all(self._quiet[wait.node] for wait in found):
            return None
        keys = {self._key(wait) for wait in found}
        key = keys.pop()
        return None if keys or None in key or UNKNOWN_KEY in key else (self._number, *key)

    def woken(self, atom_values: AtomValues) -> list[Any] | None:
        """Addresses that the atom_values concern; None where all may be."""
        if any(atom_values[i] is not False for i in self._hot):
            return None
        addresses: list[Any] = []
        for keyed in self._keyed:
            value = atom_values[keyed.atom]
            if value is False:
                continue
            if not isinstance(value, Hit):
                return None
            key = tuple(value.values[i] for i in keyed.positions)
            if UNKNOWN_KEY in key:
                return None
            addresses.append((self._number, *key))
        return addresses

    def _key(self, wait: Wait) -> tuple[Any, ...]:
        return tuple(wait.sigma[variable] for variable in self._variables)


def _atoms(formula: Formula) -> list[Formula]:
    return [f for f in walk(formula) if not children(f)]


def _index_variables(part: Part, awaited: list[Formula]) -> list[str]:
    """Variables that are fixed where the entry begins, and that every awaited atom with variables compares by `=`."""
    begun = _begun(part.body)
    compared = [
        {t.value.name for t in getattr(atom, "tests", ()) if isinstance(t.value, Variable) and t.op == "="} & begun
        for atom in awaited
        if any(isinstance(t.value, Variable) for t in getattr(atom, "tests", ()))
    ]
    return sorted(set.intersection(*compared)) if compared else []


def _begun(body: Formula) -> set[str]:
    match body:
        case Implies(left=left) | And(left=left) if not looks_ahead(left):
            return set(fixes(left))
        case _:
            return set()


def has_alarm(node: Lookahead) -> bool:
    """Whether its window closes in the order in which it opened, so that a queue of alarms can wake it."""
    return node.window is not None and not node.carried


def _is_quiet(node: int, builder: Builder) -> bool:
    """Whether it just goes on waiting at a position where every atom is false."""
    frame = Frame(START, (False,) * len(builder.atoms), [slot.initial for slot in builder.slots])
    wait = Wait(node, builder.unset, 0)
    operator = builder.ahead[node]
    if operator.op in "XN" or (operator.window is not None and not has_alarm(operator)):
        return False
    return builder.go_on(wait, frame) == wait
