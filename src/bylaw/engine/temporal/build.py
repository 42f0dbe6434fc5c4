"""A formula as closures over frames.

Every part of a formula becomes a `Value`: (frame, values of the variables) → truth. Parts that look back have a slot in
each frame's memory, filled from the one before; parts that look ahead are numbered, and answer with a `Wait` that
`move` takes on. Negation is pushed inward where something looks ahead, and is Kleene's where nothing does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.engine.temporal import tables
from bylaw.engine.temporal.fixing import Found, fixed_by
from bylaw.engine.temporal.frame import UNTIMED, Frame, clock
from bylaw.engine.temporal.keys import UNKNOWN_KEY
from bylaw.engine.temporal.letters import Hit, truth_of, variable_tests
from bylaw.engine.temporal.seen import Awaiting, Unseen, answered, await_answer
from bylaw.engine.temporal.shape import atoms, conjuncts, denied, fixes, looks_ahead, variables
from bylaw.engine.temporal.tables import EMPTY, Kept, Table
from bylaw.engine.temporal.truth import Sigma, Truth, Wait, conj, disj, moved, negate
from bylaw.model.events import Response
from bylaw.model.temporal import (
    Ahead,
    And,
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

Value: TypeAlias = Callable[[Frame, Sigma], Truth]
Settled: TypeAlias = Callable[[Frame], bool | None]
"""the truth that a frame's memory settles for that position and for all that could still come"""
Matches: TypeAlias = Callable[[Frame, Sigma], list[Found]]
"""every way in which a formula is not false here: the variables it fixes, its truth, and what remains to compare"""
Update: TypeAlias = Callable[[Frame, Any], Any]
"""(frame, what was remembered before) → what is remembered now"""


class Slot(Struct, frozen=True):
    initial: Any
    update: Update


class Remembered(Struct, frozen=True):
    slot: int
    key_of: Callable[[Sigma], tuple[Any, ...]]
    window: Window | None


class Looking(Struct, frozen=True):
    """An operator that looks ahead."""

    op: str
    left: Value
    right: Value
    window: Window | None
    at_end: bool
    """what it is where nothing follows"""
    mentions: frozenset[int]
    """variables; the others do not make two waits different"""


def true(frame: Frame, sigma: Sigma) -> Truth:
    return True


def false(frame: Frame, sigma: Sigma) -> Truth:
    return False


class Builder:
    def __init__(self, formula: Formula) -> None:
        self.atoms = atoms(formula)
        self.variables = variables(formula)
        self.unset: Sigma = (None,) * len(self.variables)
        self.slots: list[Slot] = []
        self.ahead: list[Looking] = []
        self.tables: dict[Formula, Remembered] = {}
        """for messages: where an operator that looks back keeps what it saw"""
        self.settlers: dict[Formula, Settled] = {}
        self.values: dict[Formula, Value] = {}
        self.matchers: dict[Formula, Matches] = {}
        """for messages too: how each part was compiled"""
        self._numbers = {atom: i for i, atom in enumerate(self.atoms)}
        self._variable_numbers = {name: i for i, name in enumerate(self.variables)}

    # -- any formula ----------------------------------------------------------------------------------------------

    def build(self, formula: Formula, positive: bool = True, scope: frozenset[str] = frozenset()) -> Value:
        """`scope`: variables that have a value wherever this is evaluated."""
        value = self._build(formula, positive, scope)
        if positive:
            self.values[formula] = value
        return value

    def _build(self, formula: Formula, positive: bool, scope: frozenset[str]) -> Value:
        if not positive and not looks_ahead(formula):
            return _not(self.build(formula, True, scope))
        match formula:
            case Not(of=of):
                return self.build(of, not positive, scope)
            case And(left=left, right=right):
                return self._both(left, right, scope) if positive else self._given(left, right, False, scope)
            case Or(left=left, right=right):
                return self._joined(disj if positive else conj, left, positive, right, positive, scope)
            case Implies(left=left, right=right):
                return self._given(left, right, True, scope) if positive else self._both(left, denied(right), scope)
            case Iff(left=left, right=right):
                return self._iff(left, right, positive, scope)
            case Ahead():
                return self._ahead(formula, positive, scope)
            case Pair(op="S") | Back() | Seen() | Count():
                return self._back(formula, positive, scope)
            case Pair():
                return self._pair(formula, positive, scope)
            case Constant(value=value):
                return true if value else false
            case _:
                return self._atom(formula)

    def _atom(self, formula: Formula) -> Value:
        number = self._numbers[formula]  # type: ignore[index]
        tests = variable_tests(formula, self._variable_numbers)  # type: ignore[arg-type]
        if not tests:
            return lambda frame, sigma: frame.letters[number]  # type: ignore[return-value]
        return lambda frame, sigma: truth_of(frame.letters[number], tests, sigma)

    def _joined(
        self,
        join: Callable[[Truth, Truth], Truth],
        left: Formula,
        left_positive: bool,
        right: Formula,
        right_positive: bool,
        scope: frozenset[str],
    ) -> Value:
        one, two = self.build(left, left_positive, scope), self.build(right, right_positive, scope)
        absorbing = join is disj

        def value(frame: Frame, sigma: Sigma) -> Truth:
            first = one(frame, sigma)
            return first if first is absorbing else join(first, two(frame, sigma))

        return value

    def _both(self, left: Formula, right: Formula, scope: frozenset[str]) -> Value:
        if fixes(left) <= scope:
            return self._joined(conj, left, True, right, True, scope)
        matches, then = self.matches(left, scope), self.build(right, True, scope | fixes(left))

        def value(frame: Frame, sigma: Sigma) -> Truth:
            answer: Truth = False
            for fixed, truth, _ in matches(frame, sigma):
                answer = disj(answer, conj(truth, then(frame, fixed)))
            return answer

        return value

    def _given(self, left: Formula, right: Formula, positive: bool, scope: frozenset[str]) -> Value:
        """left -> right, or left -> !right."""
        if fixes(left) <= scope:
            return self._joined(disj, left, False, right, positive, scope)
        if looks_ahead(left):
            return self._given_ahead(left, right if positive else denied(right), scope)
        matches, then = self.matches(left, scope), self.build(right, positive, scope | fixes(left))

        def value(frame: Frame, sigma: Sigma) -> Truth:
            answer: Truth = True
            for fixed, truth, _ in matches(frame, sigma):
                answer = conj(answer, disj(negate(truth), then(frame, fixed)))  # type: ignore[arg-type]
            return answer

        return value

    def _given_ahead(self, left: Formula, right: Formula, scope: frozenset[str]) -> Value:
        """A left side that fixes variables and looks ahead, taken apart until what fixes does not look ahead."""
        match left:
            case And(left=first, right=rest):
                return self._given(first, Implies(rest, right), True, scope)
            case Or(left=one, right=other):
                return self.build(And(Implies(one, right), Implies(other, right)), True, scope)
        raise AssertionError(left)

    def _iff(self, left: Formula, right: Formula, positive: bool, scope: frozenset[str]) -> Value:
        one = self._joined(disj, left, not positive, right, True, scope)
        two = self._joined(disj, left, positive, right, False, scope)
        return lambda frame, sigma: conj(one(frame, sigma), two(frame, sigma))

    def matches(self, formula: Formula, scope: frozenset[str]) -> Matches:
        matches = self.matchers[formula] = self._matches(formula, scope)
        return matches

    def _matches(self, formula: Formula, scope: frozenset[str]) -> Matches:
        match formula:
            case And(left=left, right=right):
                first, second = self.matches(left, scope), self.matches(right, scope | fixes(left))
                return lambda frame, sigma: [
                    (last, conj(truth, more), (*deferred, *later))
                    for fixed, truth, deferred in first(frame, sigma)
                    for last, more, later in second(frame, fixed)
                    if conj(truth, more) is not False
                ]
            case Or(left=left, right=right):
                first, second = self.matches(left, scope), self.matches(right, scope)
                return lambda frame, sigma: first(frame, sigma) + second(frame, sigma)
        if getattr(formula, "tests", ()) and not children(formula):
            return self._atom_matches(formula)
        value = self.build(formula, True, scope)

        def plain(frame: Frame, sigma: Sigma) -> list[Found]:
            truth = value(frame, sigma)
            return [] if truth is False else [(sigma, truth, ())]

        return plain

    def _atom_matches(self, atom: Formula) -> Matches:
        number = self._numbers[atom]  # type: ignore[index]
        tests = variable_tests(atom, self._variable_numbers)  # type: ignore[arg-type]

        def matches(frame: Frame, sigma: Sigma) -> list[Found]:
            letter = frame.letters[number]
            if letter is False:
                return []
            return [(sigma, letter, ())] if not isinstance(letter, Hit) else fixed_by(letter, tests, sigma)

        return matches

    # -- looking ahead --------------------------------------------------------------------------------------------

    def _ahead(self, formula: Ahead, positive: bool, scope: frozenset[str]) -> Value:
        op = formula.op if positive else {"X": "N", "N": "X", "F": "G", "G": "F"}[formula.op]
        of = self.build(formula.of, positive, scope)
        left = {"F": true, "G": false}.get(op, of)
        kind = {"F": "U", "G": "R"}.get(op, op)
        return self._looking(kind, left, of, formula, formula.window)

    def _pair(self, formula: Pair, positive: bool, scope: frozenset[str]) -> Value:
        left, right, op = formula.left, formula.right, str(formula.op)
        if op == "W":  # p W q is q R (p | q)
            left, right, op = formula.right, Or(formula.left, formula.right), "R"
        if not positive:
            op = {"U": "R", "R": "U"}[op]
        one, two = self.build(left, positive, scope), self.build(right, positive, scope)
        return self._looking(op, one, two, formula, formula.window)

    def _looking(self, op: str, left: Value, right: Value, formula: Formula, window: Window | None) -> Value:
        number = len(self.ahead)
        mentions = frozenset(self._variable_numbers[name] for name in variables(formula))
        self.ahead.append(Looking(op, left, right, window, op in "NR", mentions))
        if op in "XN":
            return lambda frame, sigma: Wait(number, self._masked(sigma, mentions), 0)

        def start(frame: Frame, sigma: Sigma) -> Truth:
            since = 0 if window is None else clock(frame.clocks, window)
            wait = Wait(number, self._masked(sigma, mentions), since)
            # before the first recorded time nobody knows when a window closes
            return self.go_on(wait, frame) if since != UNTIMED else _at_once(self.go_on(wait, frame))

        return start

    def _masked(self, sigma: Sigma, mentions: frozenset[int]) -> Sigma:
        return tuple(value if i in mentions else None for i, value in enumerate(sigma))

    def go_on(self, wait: Wait, frame: Frame) -> Truth:
        """The operator at this position, begun here or earlier."""
        node = self.ahead[wait.node]
        if node.op in "XN":
            return node.right(frame, wait.sigma)
        if node.window is not None and clock(frame.clocks, node.window) - wait.since > node.window.bound:
            return node.op == "R"
        right = node.right(frame, wait.sigma)
        if node.op == "U":
            return True if right is True else disj(right, conj(node.left(frame, wait.sigma), wait))
        return False if right is False else conj(right, disj(node.left(frame, wait.sigma), wait))

    def move(self, residual: Truth, frame: Frame) -> Truth:
        return moved(residual, lambda wait: self.go_on(wait, frame))

    def ended(self, residual: Truth) -> bool | None:
        """What a residual comes to where nothing follows."""
        return moved(residual, lambda wait: self.ahead[wait.node].at_end)  # type: ignore[return-value]

    # -- looking back ---------------------------------------------------------------------------------------------

    def _back(self, formula: Formula, positive: bool, scope: frozenset[str]) -> Value:
        outer = [name for name in variables(formula) if name in scope]
        match formula:
            case Back(op="Y", of=of):
                return self._yesterday(of, positive, scope)
            case Seen():
                return self._seen(formula, outer)
            case Count():
                return self._count(formula, outer)
            case Back(op="H", of=of, window=window) if outer or window:
                return _not(self._back(Back("O", denied(of), window), True, scope))
            case Back(op="O", of=of, window=window) if outer or window:
                return self._since(formula, Constant(True), of, window, outer)
            case Pair(left=left, right=right, window=window) if outer or window:
                return self._since(formula, left, right, window, outer)
            case Back():
                return self._so_far(formula, positive, scope)
            case Pair():
                return self._plain_since(formula, positive, scope)
        raise AssertionError(formula)

    def _slot(self, initial: Any, update: Update) -> int:
        self.slots.append(Slot(initial, update))
        return len(self.slots) - 1

    def _yesterday(self, of: Formula, positive: bool, scope: frozenset[str]) -> Value:
        value = self.build(of, positive, scope)
        if not looks_ahead(of):
            return lambda frame, sigma: not positive if frame.before is None else value(frame.before, sigma)

        def update(frame: Frame, before: tuple[Truth, Truth]) -> tuple[Truth, Truth]:
            return self.move(before[1], frame), value(frame, self.unset)

        slot = self._slot((not positive, not positive), update)
        return lambda frame, sigma: frame.kept[slot][0]

    def _so_far(self, formula: Back, positive: bool, scope: frozenset[str]) -> Value:
        """`O` and `H` without window and without variables of others: one truth value."""
        value = self.build(formula.of, positive, scope)
        once = (formula.op == "O") is positive
        join, certain = (disj, True) if once else (conj, False)

        def update(frame: Frame, before: Truth) -> Truth:
            if before is certain:
                return before
            return join(value(frame, self.unset), self.move(before, frame))

        slot = self._slot(not once, update)
        self.settlers[formula] = lambda frame: certain is positive if frame.kept[slot] is certain else None
        return lambda frame, sigma: frame.kept[slot]

    def _plain_since(self, formula: Pair, positive: bool, scope: frozenset[str]) -> Value:
        one, two = self.build(formula.left, positive, scope), self.build(formula.right, positive, scope)
        outer, inner = (disj, conj) if positive else (conj, disj)

        def update(frame: Frame, before: Truth) -> Truth:
            rest = inner(one(frame, self.unset), self.move(before, frame))
            return outer(two(frame, self.unset), rest)

        slot = self._slot(not positive, update)
        self.settlers[formula] = lambda frame: frame.kept[slot] is positive or None
        return lambda frame, sigma: frame.kept[slot]

    def _since(self, formula: Formula, left: Formula, right: Formula, window: Window | None, outer: list[str]) -> Value:
        """`left S right`, remembered per value of the outer variables."""
        said = fixes(right)
        key_of = self._key([name for name in outer if name in said])
        matches = self.matches(right, frozenset())
        clears = self._clearing(left, outer, key_of)
        trim = tables.keep_latest
        if set(outer) - said or _defers(right):
            trim = tables.keep_better if window else tables.keep_best

        def update(frame: Frame, table: Table) -> Table:
            for clear in clears:
                table = clear(frame, table)
            for fixed, truth, deferred in matches(frame, self.unset):
                kept = Kept(frame.clocks, truth is True, deferred, frame.place() if outer else frame.position)
                table = tables.remember(table, key_of(fixed), kept, trim, window)
            return table

        slot = self._slot(EMPTY, update)
        self.tables[formula] = Remembered(slot, key_of, window)

        def value(frame: Frame, sigma: Sigma) -> Truth:
            return tables.held(frame.kept[slot], key_of(sigma), frame, window, sigma)

        return value

    def _key(self, names: list[str]) -> Callable[[Sigma], tuple[Any, ...]]:
        numbers = [self._variable_numbers[name] for name in names]
        if len(numbers) == 1:
            number = numbers[0]
            return lambda sigma: (sigma[number],)
        return lambda sigma: tuple(sigma[number] for number in numbers)

    def _clearing(
        self, left: Formula, outer: list[str], key_of: Callable[[Sigma], tuple[Any, ...]]
    ) -> list[Callable[[Frame, Table], Table]]:
        """What the left side of `S` does to the table at each position."""
        return [self._clear(one, outer, key_of) for one in conjuncts(left) if one != Constant(True)]

    def _clear(
        self, part: Formula, outer: list[str], key_of: Callable[[Sigma], tuple[Any, ...]]
    ) -> Callable[[Frame, Table], Table]:
        if not set(variables(part)) & set(outer):
            value = self.build(part)

            def clear_all(frame: Frame, table: Table) -> Table:
                truth = value(frame, self.unset)
                if truth is False:
                    return EMPTY
                return tables.doubt_all(table, frame.clocks) if truth is None else table

            return clear_all
        matches = self.matches(denied(part), frozenset())

        def clear_one(frame: Frame, table: Table) -> Table:
            for fixed, truth, _ in matches(frame, self.unset):
                key = key_of(fixed)
                if UNKNOWN_KEY in key:
                    table = tables.doubt_all(table, frame.clocks)
                else:
                    table = tables.forget(table, key) if truth is True else tables.doubt(table, key)
            return table

        return clear_one

    def _count(self, formula: Count, outer: list[str]) -> Value:
        matches, key_of = self.matches(formula.of, frozenset()), self._key(outer)
        window, trim = formula.window, tables.keep_counted(formula.number)

        def update(frame: Frame, table: Table) -> Table:
            sure: dict[tuple[Any, ...], bool] = {}  # a position counts once, in however many ways it matches
            for fixed, truth, _ in matches(frame, self.unset):
                key = key_of(fixed)
                sure[key] = sure.get(key, False) or truth is True
            for key, is_sure in sure.items():
                table = tables.remember(table, key, Kept(frame.clocks, is_sure, (), frame.place()), trim, window)
            return table

        slot = self._slot(EMPTY, update)
        self.tables[formula] = Remembered(slot, key_of, window)

        def value(frame: Frame, sigma: Sigma) -> Truth:
            sure, most = tables.counted(frame.kept[slot], key_of(sigma), frame, window)
            return tables.compare_count(formula.op, sure, most, formula.number)

        return value

    # -- what the model had seen ----------------------------------------------------------------------------------

    def _seen(self, formula: Seen, outer: list[str]) -> Value:
        said = fixes(formula.of)
        variables_key, window = self._key([name for name in outer if name in said]), formula.window
        matches = self.matches(formula.of, frozenset())
        trim = tables.keep_better if window or _defers(formula.of) else tables.keep_first

        def update(frame: Frame, before: Awaiting) -> Awaiting:
            event = frame.position.event if frame.position is not None else None
            if isinstance(event, Response):
                return answered(before, frame, event, window, trim)
            for fixed, truth, deferred in matches(frame, self.unset):
                kept = Kept(frame.clocks, truth is True, deferred, frame.place())
                before = await_answer(
                    before, Unseen(frame.run, getattr(event, "call_id", None), variables_key(fixed), kept)
                )
            return before

        slot = self._slot(Awaiting(), update)

        def value(frame: Frame, sigma: Sigma) -> Truth:
            key = (frame.run, *variables_key(sigma))
            return tables.held(frame.kept[slot].seen, key, frame, window, sigma)

        return value


def _at_once(truth: Truth) -> bool | None:
    return truth if isinstance(truth, bool) else None


def _defers(formula: Formula) -> bool:
    """Whether an atom compares with a variable other than by `=`."""
    tests = (test for atom in atoms(formula) for test in getattr(atom, "tests", ()))
    return any(test.op != "=" for test in tests if isinstance(test.value, Variable))


def _not(value: Value) -> Value:
    return lambda frame, sigma: negate(value(frame, sigma))  # type: ignore[arg-type]
