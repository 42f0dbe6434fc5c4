"""Operators that look back: each has a slot in every frame's memory, filled from the one before."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from bylaw.engine.temporal import tables
from bylaw.engine.temporal.frame import (
    UNTIMED,
    Clocks,
    Compilation,
    Frame,
    TableSlot,
    Tally,
    Value,
    clock,
    negate_value,
)
from bylaw.engine.temporal.shape import atoms, conjuncts, fixes, looks_ahead, negate_formula, variables
from bylaw.engine.temporal.tables import (
    EMPTY,
    Awaiting,
    Match,
    Table,
    Unseen,
    await_answer,
    has_lost,
    mark_seen_results,
    possible_keys,
    put,
    remember_wild,
    wild_matches,
)
from bylaw.engine.temporal.truth import Key, Sigma, Truth, conj, disj
from bylaw.engine.temporal.variables import UNKNOWN_KEY
from bylaw.engine.values import ORDERS
from bylaw.model.events import Response
from bylaw.model.temporal import Back, Constant, Count, Formula, Pair, Seen, Variable, Window

# -- counts ------------------------------------------------------------------------------------------------------------

# What `count` remembers for each value of its variables: how many, and with a window also when. Without a window that
# is two numbers, whatever the bound. With a window it is the latest clock readings, as many as the bound asks for and
# the window holds, in a queue: the cost of an event does not depend on how many there are.

MOST_NAMED = 8
"""earlier positions that a message names"""


def count(table: Table, key: tuple[Key, ...], match: Match, window: Window | None, number: int) -> Table:
    """One more position for this value; counts above `number` are all alike."""
    if UNKNOWN_KEY in key:
        return remember_wild(table, key, match)
    cell = table.cells.get(key)
    matches = () if cell is None else cell.matches
    tally = Tally() if cell is None or cell.tally is None else cell.tally
    tally = _raise_tally(tally, match.clocks, match.sure, window, number)
    named = (*matches, match)[-min(number, MOST_NAMED) - 1 :]
    return put(table, key, named, window, tally=tally)


def _raise_tally(tally: Tally, clocks: Clocks, sure: bool, window: Window | None, number: int) -> Tally:
    now = 0.0 if window is None else clock(clocks, window)
    if window is None or now == UNTIMED:
        is_sure = sure and window is None
        return Tally(tally.sure + is_sure, tally.unsure + (not is_sure), tally.sure_at, tally.unsure_at)
    if sure:
        return Tally(tally.sure, tally.unsure, tally.sure_at.added(now, window, number + 1), tally.unsure_at)
    return Tally(tally.sure, tally.unsure, tally.sure_at, tally.unsure_at.added(now, window, number + 1))


def count_matches(table: Table, key: tuple[Key, ...], frame: Frame, window: Window | None) -> tuple[int, int | None]:
    """The certain number, and the largest possible one; None if that is unknown."""
    lost = has_lost(table, frame, window)
    if UNKNOWN_KEY in key:
        keys = possible_keys(table, key)
        if keys is None or lost:
            return 0, None
        return 0, sum(sum(_numbers(table, one, frame, window)) for one in keys) + len(table.wild)
    sure, unsure = _numbers(table, key, frame, window)
    unsure += sum(1 for _ in wild_matches(table, key, frame, window))
    return sure, None if lost else sure + unsure


def _numbers(table: Table, key: tuple[Key, ...], frame: Frame, window: Window | None) -> tuple[int, int]:
    cell = table.cells.get(key)
    if cell is None or (tally := cell.tally) is None:
        return 0, 0
    if window is None:
        return tally.sure, tally.unsure
    now, last = clock(frame.clocks, window), cell.matches[-1]
    sure, unsure = tally.sure_at.since(now, window), tally.unsure + tally.unsure_at.since(now, window)
    is_here = last.sure and last.clocks.events == frame.clocks.events and clock(last.clocks, window) == UNTIMED
    return sure + is_here, unsure - is_here


def compare_count(op: str, sure: int, most: int | None, number: int) -> bool | None:
    """Kleene over every count from `sure` to `most`. Only the ends and the number itself can differ."""
    top = max(sure, number + 1) if most is None else most
    answers = {_COMPARE[op](one, number) for one in (sure, min(max(sure, number), top), top)}
    return answers.pop() if len(answers) == 1 else None


_COMPARE: dict[str, Callable[[int, int], bool]] = {"=": operator.eq, "!=": operator.ne, **ORDERS}


# -- operators ---------------------------------------------------------------------------------------------------------


def build_back(builder: Compilation, formula: Formula, positive: bool, scope: frozenset[str]) -> Value:
    outer = [name for name in variables(formula) if name in scope]
    match formula:
        case Back(op="Y", of=of):
            return _yesterday(builder, of, positive, scope)
        case Seen():
            return _build_seen(builder, formula, outer)
        case Count():
            return _count(builder, formula, outer)
        case Back(op="H", of=of, window=window) if outer or window:
            return negate_value(build_back(builder, Back("O", negate_formula(of), window), True, scope))
        case Back(op="O", of=of, window=window) if outer or window:
            return _since(builder, formula, Constant(True), of, window, outer)
        case Pair(left=left, right=right, window=window) if outer or window:
            return _since(builder, formula, left, right, window, outer)
        case Back():
            return _so_far(builder, formula, positive, scope)
        case Pair():
            return _plain_since(builder, formula, positive, scope)
    raise AssertionError(formula)


def _yesterday(builder: Compilation, of: Formula, positive: bool, scope: frozenset[str]) -> Value:
    value = builder.build(of, positive, scope)
    if not looks_ahead(of):
        return lambda frame, sigma: not positive if frame.before is None else value(frame.before, sigma)

    def update(frame: Frame, before: tuple[Truth, Truth]) -> tuple[Truth, Truth]:
        return builder.move(before[1], frame), value(frame, builder.unset)

    slot = builder.add_slot((not positive, not positive), update)
    return lambda frame, sigma: frame.memory[slot][0]


def _so_far(builder: Compilation, formula: Back, positive: bool, scope: frozenset[str]) -> Value:
    """`O` and `H` without window and without variables of others: one truth value."""
    value = builder.build(formula.of, positive, scope)
    once = (formula.op == "O") is positive
    join, certain = (disj, True) if once else (conj, False)

    def update(frame: Frame, before: Truth) -> Truth:
        if before is certain:
            return before
        return join(value(frame, builder.unset), builder.move(before, frame))

    slot = builder.add_slot(not once, update)
    builder.settlers[formula] = lambda frame: certain is positive if frame.memory[slot] is certain else None
    return lambda frame, sigma: frame.memory[slot]


def _plain_since(builder: Compilation, formula: Pair, positive: bool, scope: frozenset[str]) -> Value:
    one, two = builder.build(formula.left, positive, scope), builder.build(formula.right, positive, scope)
    outer, inner = (disj, conj) if positive else (conj, disj)

    def update(frame: Frame, before: Truth) -> Truth:
        rest = inner(one(frame, builder.unset), builder.move(before, frame))
        return outer(two(frame, builder.unset), rest)

    slot = builder.add_slot(not positive, update)
    builder.settlers[formula] = lambda frame: frame.memory[slot] is positive or None
    return lambda frame, sigma: frame.memory[slot]


def _since(
    builder: Compilation, formula: Formula, left: Formula, right: Formula, window: Window | None, outer: list[str]
) -> Value:
    """`left S right`, remembered per value of the outer variables."""
    fixed = fixes(right)
    key_of = _key(builder, [name for name in outer if name in fixed])
    matches = builder.matches(right, frozenset())
    # the effect of the left side on the table at each position
    clears = [_clear(builder, one, outer, key_of) for one in conjuncts(left) if one != Constant(True)]
    trim = tables.keep_latest
    if set(outer) - fixed or _defers(right):
        trim = tables.keep_better if window else tables.keep_best

    def update(frame: Frame, table: Table) -> Table:
        for clear in clears:
            table = clear(frame, table)
        for fixed, truth, deferred in matches(frame, builder.unset):
            match = Match(frame.clocks, truth is True, deferred, frame.place() if outer else frame.position)
            table = tables.remember(table, key_of(fixed), match, trim, window)
        return table

    slot = builder.add_slot(EMPTY, update)
    builder.tables[formula] = TableSlot(slot, key_of, window)

    def value(frame: Frame, sigma: Sigma) -> Truth:
        return tables.holds(frame.memory[slot], key_of(sigma), frame, window, sigma)

    return value


def _key(builder: Compilation, names: list[str]) -> Callable[[Sigma], tuple[Any, ...]]:
    numbers = [builder.variable_numbers[name] for name in names]
    if len(numbers) == 1:
        number = numbers[0]
        return lambda sigma: (sigma[number],)
    return lambda sigma: tuple(sigma[number] for number in numbers)


def _clear(
    builder: Compilation, part: Formula, outer: list[str], key_of: Callable[[Sigma], tuple[Any, ...]]
) -> Callable[[Frame, Table], Table]:
    if not set(variables(part)) & set(outer):
        value = builder.build(part)

        def clear_all(frame: Frame, table: Table) -> Table:
            truth = value(frame, builder.unset)
            if truth is False:
                return EMPTY
            return tables.doubt_all(table, frame.clocks) if truth is None else table

        return clear_all
    matches = builder.matches(negate_formula(part), frozenset())

    def clear_one(frame: Frame, table: Table) -> Table:
        for fixed, truth, _ in matches(frame, builder.unset):
            key = key_of(fixed)
            if UNKNOWN_KEY in key:
                table = tables.doubt_all(table, frame.clocks)
            else:
                table = tables.forget(table, key) if truth is True else tables.doubt(table, key)
        return table

    return clear_one


def _count(builder: Compilation, formula: Count, outer: list[str]) -> Value:
    matches, key_of = builder.matches(formula.of, frozenset()), _key(builder, outer)
    window, number = formula.window, formula.number

    def update(frame: Frame, table: Table) -> Table:
        sure: dict[tuple[Any, ...], bool] = {}  # a position counts once, in however many ways it matches
        for fixed, truth, _ in matches(frame, builder.unset):
            key = key_of(fixed)
            sure[key] = sure.get(key, False) or truth is True
        for key, is_sure in sure.items():
            table = count(table, key, Match(frame.clocks, is_sure, (), frame.place()), window, number)
        return table

    slot = builder.add_slot(EMPTY, update)
    builder.tables[formula] = TableSlot(slot, key_of, window)

    def value(frame: Frame, sigma: Sigma) -> Truth:
        sure, most = count_matches(frame.memory[slot], key_of(sigma), frame, window)
        return compare_count(formula.op, sure, most, number)

    return value


def _build_seen(builder: Compilation, formula: Seen, outer: list[str]) -> Value:
    fixed = fixes(formula.of)
    variables_key, window = _key(builder, [name for name in outer if name in fixed]), formula.window
    matches = builder.matches(formula.of, frozenset())
    trim = tables.keep_better if window or _defers(formula.of) else tables.keep_first

    def update(frame: Frame, before: Awaiting) -> Awaiting:
        event = frame.position.event if frame.position is not None else None
        if isinstance(event, Response):
            return mark_seen_results(before, frame, event, window, trim)
        for fixed, truth, deferred in matches(frame, builder.unset):
            match = Match(frame.clocks, truth is True, deferred, frame.place())
            before = await_answer(
                before, Unseen(frame.run, getattr(event, "call_id", None), variables_key(fixed), match)
            )
        return before

    slot = builder.add_slot(Awaiting(), update)

    def value(frame: Frame, sigma: Sigma) -> Truth:
        memory = frame.memory[slot]
        run = memory.run_at(frame)
        if run is None:
            return None
        return tables.holds(memory.seen, (run, *variables_key(sigma)), frame, window, sigma)

    return value


def _defers(formula: Formula) -> bool:
    """Whether an atom compares with a variable other than by `=`."""
    tests = (test for atom in atoms(formula) for test in getattr(atom, "tests", ()))
    return any(test.op != "=" for test in tests if isinstance(test.value, Variable))
