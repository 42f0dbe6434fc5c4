"""A rule as an automaton over abstract positions, built as it is walked.

Only formulas whose truth depends on finitely much: no variables, no windows, no `seen` or `count`, positions that are
events. A event is one kind of position: a call of a tool, a result of one, a response, with a truth value for every
atom. Atoms that ask more than a name (arguments, text) may be true or not, independent of the others; that only adds
positions, so that what no trace over these events can do, no real trace can do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.engine.matching import compile_names, is_glob
from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.frame import START, Frame
from bylaw.engine.temporal.shape import atoms, parts_of, variables, walk, windows, yesterdays
from bylaw.engine.temporal.truth import Truth, conj
from bylaw.model.demand import Calls, Temporal
from bylaw.model.temporal import Atom, Count, Formula, Implies, ResultOf, Seen, StopsFor, ToolIs

MOST_EVENTS = 256
MOST_STATES = 4_000
"""states of one search; beyond that the answer is that nobody looked"""

State: TypeAlias = tuple[Any, ...]


class NotAnalysed(Exception):
    """The question cannot be answered here; the argument says why."""


class AbstractEvent(Struct, frozen=True):
    name: str
    """for people: `call refund`"""
    true: frozenset[Atom]


def why_not(demand: Temporal) -> str | None:
    """What takes a formula out of the fragment."""
    found = list(walk(demand.formula))
    if demand.over == "turns":
        return "its positions are turns"
    if variables(demand.formula):
        return "it has variables"
    if next(windows(demand.formula), None) is not None:
        return "it has a window"
    return "it uses `seen` or `count`" if any(isinstance(f, Seen | Count) for f in found) else None


class Automaton:
    """The automaton of one rule. A state holds the operators' memory and the open obligations."""

    def __init__(self, formula: Formula) -> None:
        self.atoms = atoms(formula)
        self._builder = Builder(formula)
        self._parts = parts_of(formula)
        self._values = [self._builder.build(part.body) for part in self._parts]
        self._lefts = [
            self._builder.build(part.body.left) if part.conditional and isinstance(part.body, Implies) else None
            for part in self._parts
        ]
        self._depth = yesterdays(formula)
        self.initial: State = (tuple(slot.initial for slot in self._builder.slots), None, True, False, False)

    def step(self, state: State, event: AbstractEvent) -> State:
        memories, before, owed, begun, fired = state
        frame = Frame(START, tuple(atom in event.true for atom in self.atoms), [], _frame(before))
        for slot, memory in zip(self._builder.slots, memories, strict=True):
            frame.memory.append(slot.update(frame, memory))
        owed = self._builder.move(owed, frame)
        for part, value, left in zip(self._parts, self._values, self._lefts, strict=True):
            if part.always or not begun:
                owed = conj(owed, value(frame, ()))
                fired = fired or left is None or left(frame, ()) is not False
        now = (frame.atom_values, tuple(frame.memory), before)
        return tuple(frame.memory), _cut(now, self._depth), owed, True, fired

    def is_broken(self, state: State) -> bool:
        return state[2] is False

    def is_satisfied(self, state: State) -> bool:
        """Whether a trace may end here."""
        owed: Truth = state[2]
        return self._builder.ended(owed) is True

    def has_fired(self, state: State) -> bool:
        return bool(state[4])


def _frame(before: Any) -> Frame | None:
    if before is None:
        return None
    values, memory, earlier = before
    return Frame(START, values, list(memory), _frame(earlier))


def _cut(frame: Any, depth: int) -> Any:
    if depth == 0 or frame is None:
        return None
    return (frame[0], frame[1], _cut(frame[2], depth - 1))


# -- events ----------------------------------------------------------------------------------------------------------


def abstract_events(found: Iterable[Atom]) -> list[AbstractEvent]:
    """Every kind of position that the atoms can tell apart, and one that none is true at."""
    known = list(dict.fromkeys(found))
    calls = [atom for atom in known if isinstance(atom, ToolIs)]
    results = [atom for atom in known if isinstance(atom, ResultOf)]
    rest = [atom for atom in known if not isinstance(atom, ToolIs | ResultOf)]
    events = [*_tools("call", calls), *_tools("result of", results), *_responses(rest)]
    events = list(dict.fromkeys([*events, AbstractEvent("some other event", frozenset())]))
    if len(events) > MOST_EVENTS:
        raise NotAnalysed("its atoms can be combined in too many ways")
    return events


def _tools(what: str, found: Sequence[ToolIs | ResultOf]) -> Iterator[AbstractEvent]:
    names = list(dict.fromkeys(name for atom in found for name in atom.names if not is_glob(name)))
    for name in names:
        yield from _free(f"{what} {name}", [atom for atom in found if compile_names(Calls(atom.names))(name)])
    globbed = [atom for atom in found if any(map(is_glob, atom.names))]
    for some in filter(None, _subsets(globbed)):
        shown = " and ".join(atom.names[0] for atom in some)
        yield from _free(f"{what} a tool like {shown}", some)


def _free(name: str, found: Sequence[Atom]) -> Iterator[AbstractEvent]:
    """Atoms that ask only for the name are true; the others may be."""
    certain = frozenset(atom for atom in found if not getattr(atom, "tests", ()))
    for some in _subsets([atom for atom in found if atom not in certain]):
        more = "".join(f" with {atom.tests[0].text}" for atom in some if isinstance(atom, ToolIs | ResultOf))
        yield AbstractEvent(name + more, certain | frozenset(some))


def _responses(found: Sequence[Atom]) -> Iterator[AbstractEvent]:
    for some in _subsets(found):
        reasons = [atom for atom in some if isinstance(atom, StopsFor)]
        if some and len(reasons) <= 1:
            yield AbstractEvent("response with " + " and ".join(f"{atom.text}" for atom in some), frozenset(some))


def _subsets(found: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    if len(found) > 8:
        raise NotAnalysed("its atoms can be combined in too many ways")
    for chosen in product((False, True), repeat=len(found)):
        yield tuple(atom for atom, is_in in zip(found, chosen, strict=True) if is_in)


# -- questions --------------------------------------------------------------------------------------------------------

Machines: TypeAlias = Sequence[Automaton]


def shortest(machines: Machines, wanted: Callable[[tuple[State, ...]], bool]) -> list[str] | None:
    """The shortest trace, of one position at least, after which all is as wanted; None where there is none."""
    events = abstract_events(atom for machine in machines for atom in machine.atoms)
    start = tuple(machine.initial for machine in machines)
    seen = {start}
    queue = deque([(start, ())])
    while queue:
        states, path = queue.popleft()
        for event in events:
            after = tuple(m.step(state, event) for m, state in zip(machines, states, strict=True))
            if after in seen:
                continue
            if wanted(after):
                return [*path, event.name]
            seen.add(after)
            if len(seen) > MOST_STATES:
                raise NotAnalysed("it has too many states")
            if not any(m.is_broken(s) for m, s in zip(machines, after, strict=True)):
                queue.append((after, (*path, event.name)))  # type: ignore[arg-type]
    return None


def all_satisfied(machines: Machines) -> Callable[[tuple[State, ...]], bool]:
    return lambda states: all(m.is_satisfied(s) for m, s in zip(machines, states, strict=True))
