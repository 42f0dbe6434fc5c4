"""How open positions are resolved: by later events, by the end of the scope, or because nothing can change them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from bylaw.engine.monitor import FoundViolation
from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.frame import START, Frame, Lookahead, Position, clock, elapsed
from bylaw.engine.temporal.pending import Address, Entry, Origin, Pending, Progress, State
from bylaw.engine.temporal.shape import Conjunct, atoms, evaluate, fixes, looks_ahead, looks_back, variables
from bylaw.engine.temporal.tables import Awaiting, Table
from bylaw.engine.temporal.truth import Residual, Sigma, Wait, may_have_failed, waits
from bylaw.engine.temporal.variables import UNKNOWN_KEY, AtomValues, Hit, is_digest, show_key
from bylaw.model.temporal import And, Back, Count, Formula, Implies, Not, Pair, Variable, Window, is_ahead, walk
from bylaw.model.verdict import EventRef

# -- explanations ------------------------------------------------------------------------------------------------------

# Why a verdict came out as it did, in the user's own words: the parts of the formula, and the events at hand.


_QUOTES = re.compile(r"\"[^\"]*\"|`[^`]*`")


def describe_event(event: EventRef) -> str:
    tool = "a tool" if event.name is None else f"`{event.name}`"
    return {"tool_call": f"{tool} was called", "tool_result": f"{tool} returned"}.get(event.event, "the model answered")


def explain_failure(part: Conjunct, frame: Frame, builder: Builder) -> tuple[str, tuple[EventRef, ...]]:
    """The message where a position fails at once, and the earlier events that matter."""
    assert frame.position is not None
    happened = describe_event(frame.position.place())
    wanted, sigma = _find_failed_part(part.body, frame, builder)
    reason, evidence = _reason(wanted, frame, sigma, builder)
    values = _values(wanted, sigma, builder, in_words=bool(part.words or part.message))
    if part.message:
        return f"{_tell(happened, part.message)}{values}{reason if evidence else ''}", evidence
    rule = part.words or f"`{wanted.text}` is not true there"
    return f"{happened}, but {rule}{values}{reason}", evidence


def explain_unmet(part: Conjunct, origin: EventRef, late: str) -> str:
    body = part.body
    wanted = body.right if isinstance(body, Implies) else body
    if part.message:
        return f"{_tell(describe_event(origin), part.message)}{late if late.startswith(':') else ''}"
    if part.words:
        return f"{describe_event(origin)}, but {part.words}{late if late.startswith(':') else f', and none came{late}'}"
    return f"{describe_event(origin)}, but `{wanted.text}` did not come true{late}"


def _tell(happened: str, message: str) -> str:
    """A message with `, but` says itself what happened: a turn, or what the user said, is more than an answer."""
    return message if ", but " in _QUOTES.sub("", message) else f"{happened}, but {message}"


def _find_failed_part(body: Formula, frame: Frame, builder: Builder) -> tuple[Formula, Sigma]:
    """The part that should be true: the right side of an implication, and in it the first conjunct that fails."""
    sigma = builder.unset
    while isinstance(body, Implies | And):
        matches, value = builder.matchers.get(body.left), builder.values.get(body.left)
        if matches is not None:
            found = matches(frame, sigma)
            if not found:
                break
            sigma = found[0][0]
        elif isinstance(body, And) and value is not None and value(frame, sigma) is False:
            body = body.left
            continue
        body = body.right
    return body, sigma


def _reason(wanted: Formula, frame: Frame, sigma: Sigma, builder: Builder) -> tuple[str, tuple[EventRef, ...]]:
    match wanted:
        case Back(op="Y", of=of) if frame.before is not None:
            return _reason(of, frame, sigma, builder)
        case Count() if wanted in builder.tables:
            return _places(wanted, frame, sigma, builder)
        case Back(op="O") | Pair(op="S"):
            return _explain_no_match(wanted, frame, sigma, builder)
        case Not(of=of):
            while isinstance(of, Back) and of.op == "Y":
                of = of.of
            return _places(of, frame, sigma, builder) if of in builder.tables else ("", ())
        case _:
            return "", ()


def _explain_no_match(
    wanted: Formula, frame: Frame, sigma: Sigma, builder: Builder
) -> tuple[str, tuple[EventRef, ...]]:
    at = builder.tables.get(wanted)
    nothing = ": nothing earlier matches" if isinstance(wanted, Back) else ": no match before is still in force"
    if at is None or at.window is None:
        return nothing, ()
    cell = frame.memory[at.slot].cells.get(at.key_of(sigma))
    if cell is None:
        return nothing, ()
    last = cell.matches[-1]
    passed = elapsed(frame.clocks, last.clocks, at.window)
    if passed <= at.window.bound:
        return ": what matched earlier does not pass the comparison", _refs(last.place)
    late = (
        f": the last match was {show(passed, at.window)} before, {show(passed - at.window.bound, at.window)} too long"
    )
    return late, _refs(last.place)


def _places(formula: Formula, frame: Frame, sigma: Sigma, builder: Builder) -> tuple[str, tuple[EventRef, ...]]:
    at = builder.tables[formula]
    cell = frame.memory[at.slot].cells.get(at.key_of(sigma))
    earlier = [match for match in cell.matches if match.clocks.events < frame.clocks.events] if cell is not None else []
    return "", tuple(place for match in earlier[-8:] for place in _refs(match.place))


def _refs(place: EventRef | Position | None) -> tuple[EventRef, ...]:
    if place is None:
        return ()
    return (place.place() if isinstance(place, Position) else place,)


def _values(wanted: Formula, sigma: Sigma, builder: Builder, *, in_words: bool) -> str:
    names = [name for name in variables(wanted) if sigma[builder.variables.index(name)] is not None]
    if in_words:  # of a list or mapping only a digest is left, which tells a reader nothing
        names = [name for name in names if not is_digest(sigma[builder.variables.index(name)])]
    sign = "" if in_words else "$"
    shown = [f"{sign}{name} = {show_key(sigma[builder.variables.index(name)])}" for name in names]
    return f" ({', '.join(shown)})" if shown else ""


def show(amount: float, window: Window) -> str:
    """A stretch of a clock, for people."""
    if window.unit != "seconds":
        return f"{amount:g} {window.unit[:-1] if amount == 1 else window.unit}"
    if amount < 60:
        return f"{amount:.3g}s"
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, amount = divmod(amount, size)
        if count:
            parts.append(f"{count:.0f}{unit}")
    return " ".join(parts[:2])


# -- wake-up -----------------------------------------------------------------------------------------------------------

# Which open entries an event can change, by its atom values alone.


class Waker:
    """Maps atom values to the entries of one conjunct that they may resolve."""

    def __init__(self, number: int, part: Conjunct, builder: Builder) -> None:
        self._number = number
        looking = list(filter(is_ahead, walk(part.body)))
        self._always = any(looks_back(formula) for formula in looking)
        awaited = list(dict.fromkeys(atom for formula in looking for atom in atoms(formula)))
        self._index = _index_variables(part, awaited)
        numbers = {name: i for i, name in enumerate(builder.variables)}
        self._variables = tuple(numbers[name] for name in self._index)
        self._hot: list[int] = []
        self._keyed: list[tuple[int, tuple[int, ...]]] = []
        """atoms that can only concern entries with their own values, and which of a Hit's values make the key"""
        for atom in awaited:
            tests = [t for t in getattr(atom, "tests", ()) if isinstance(t.value, Variable)]
            names = [t.value.name if t.op == "=" else None for t in tests]
            if self._index and all(name in names for name in self._index):
                self._keyed.append((builder.atoms.index(atom), tuple(map(names.index, self._index))))
            else:
                self._hot.append(builder.atoms.index(atom))
        self._quiet = [_is_quiet(i, builder) for i in range(len(builder.ahead))]

    def address(self, residual: Residual) -> Address:
        """Where an entry waits; None where every event may change it."""
        found = waits(residual)
        if self._always or not all(self._quiet[wait.node] for wait in found):
            return None
        keys = {tuple(wait.sigma[variable] for variable in self._variables) for wait in found}
        key = keys.pop()
        return None if keys or None in key or UNKNOWN_KEY in key else (self._number, *key)

    def woken(self, atom_values: AtomValues) -> list[Any] | None:
        """Addresses that the atom_values concern; None where all may be."""
        if any(atom_values[i] is not False for i in self._hot):
            return None
        addresses: list[Any] = []
        for atom, positions in self._keyed:
            value = atom_values[atom]
            if value is False:
                continue
            if not isinstance(value, Hit):
                return None
            key = tuple(value.values[i] for i in positions)
            if UNKNOWN_KEY in key:
                return None
            addresses.append((self._number, *key))
        return addresses


def _index_variables(part: Conjunct, awaited: Sequence[Formula]) -> list[str]:
    """Variables that are fixed where the entry begins, and that every awaited atom with variables compares by `=`."""
    body = part.body
    begins = isinstance(body, Implies | And) and not looks_ahead(body.left)
    begun = fixes(body.left) if begins else frozenset[str]()  # type: ignore[union-attr]
    compared = [fixes(atom) & begun for atom in awaited if variables(atom)]
    return sorted(frozenset.intersection(*compared)) if compared else []


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


# -- by the events that follow ----------------------------------------------------------------------------------------


class Resolver:
    """Moves the open entries of a rule past each position."""

    def __init__(self, parts: Sequence[Conjunct], builder: Builder) -> None:
        self._parts, self._builder = parts, builder
        self._wakers = [Waker(i, part, builder) for i, part in enumerate(parts)]
        self._alarmed = [(i, node.window) for i, node in enumerate(builder.ahead) if node.window and has_alarm(node)]

    def enter(self, pending: Pending, part: int, residual: Residual, origins: Entry | Origin) -> Pending:
        pending, is_new = pending.enter(part, residual, origins, self._wakers[part].address(residual))
        return self._set_alarms(pending, pending.tail - 1, waits(residual)) if is_new else pending

    def _set_alarms(self, pending: Pending, number: int, begun: list[Wait]) -> Pending:
        for wait in begun:
            node = self._builder.ahead[wait.node]
            if node.window is not None and has_alarm(node):
                pending = pending.set_alarm(number, wait.node, wait.since + node.window.bound)
        return pending

    def _change(self, pending: Pending, number: int, entry: Entry, residual: Residual) -> Pending:
        """An entry goes on with another residual: only windows that open here need an alarm."""
        waker = self._wakers[entry.part]
        if (entry.part, residual) in pending.numbers:
            pending = pending.leave(number, waker.address(entry.residual))
            return self.enter(pending, entry.part, residual, entry)
        pending = pending.change(number, residual, waker.address(entry.residual), waker.address(residual))
        known = set(waits(entry.residual))
        return self._set_alarms(pending, number, [wait for wait in waits(residual) if wait not in known])

    def move_on(self, now: Progress) -> None:
        for number in sorted(self._woken(now)):
            entry = now.pending.entries.get(number)
            if entry is None:
                continue
            truth = self._builder.move(entry.residual, now.frame)
            if may_have_failed(entry.residual, truth, partial(self._builder.go_on, frame=now.frame)):
                now.suspect(self._parts[entry.part], entry.origins[0].place)
            if truth == entry.residual:
                continue
            if not isinstance(truth, bool | None):
                now.pending = self._change(now.pending, number, entry, truth)
                continue
            now.pending = now.pending.leave(number, self._wakers[entry.part].address(entry.residual))
            if truth is False:
                now.found += self._make_violations(entry, now)
            elif truth is None:
                now.doubt(entry.origins[0].turn, len(entry.origins) + entry.more)

    def _woken(self, now: Progress) -> set[int]:
        pending, frame = now.pending, now.frame
        woken = set(pending.restless)
        for node, window in self._alarmed:
            pending, late = pending.take_expired(node, clock(frame.clocks, window))
            woken.update(late)
        now.pending = pending
        for waker in self._wakers:
            addresses = waker.woken(frame.atom_values)
            if addresses is None:
                return set(pending.entries)
            for address in addresses:
                woken.update(pending.waiting.get(address, ()))
        return woken

    def _make_violations(self, entry: Entry, now: Progress) -> list[FoundViolation]:
        late = self._lateness(entry.residual, now.frame)
        at, part = now.at, self._parts[entry.part]
        found = [
            FoundViolation(explain_unmet(part, origin.place, late), at.session, at.turn, (origin.place, at.place()))
            for origin in entry.origins
        ]
        return [*found, *_count_unnamed(entry, at.turn)]

    def _lateness(self, residual: Residual, frame: Frame) -> str:
        for wait in waits(residual):
            window = self._builder.ahead[wait.node].window
            if window is not None and (passed := clock(frame.clocks, window) - wait.since) > window.bound:
                return f": {show(passed, window)} have passed, {show(passed - window.bound, window)} too many"
        return ""


def _count_unnamed(entry: Entry, turn: int | None) -> list[FoundViolation]:
    if not entry.more:
        return []
    return [FoundViolation(f"{entry.more:,} more positions fail the same way, too many to name each", None, turn)]


# -- by the end of the scope ------------------------------------------------------------------------------------------


def unmet_obligations(state: State, parts: Sequence[Conjunct], builder: Builder) -> tuple[list[FoundViolation], int]:
    """Where nothing follows: the positions that fail, and the number of those that cannot be decided."""
    found: list[FoundViolation] = []
    doubts = 0
    for number in sorted(state.pending.entries):
        entry = state.pending.entries[number]
        truth = builder.ended(entry.residual)
        if truth is False:
            found += _failed_at_end(entry, parts[entry.part])
        elif truth is None:
            doubts += len(entry.origins) + entry.more
    return found, doubts


def _failed_at_end(entry: Entry, part: Conjunct) -> list[FoundViolation]:
    if not part.always:
        unmet = part.message or f"`{part.text}` had not come true at the end"
        if part.words and not part.message:
            unmet = f"{part.words}, and at the end there was none"
        return [FoundViolation(unmet, entry.origins[0].session or None, None, ())]
    found = [
        FoundViolation(
            explain_unmet(part, origin.place, " before the end"), origin.session, origin.turn, (origin.place,)
        )
        for origin in entry.origins
    ]
    return [*found, *_count_unnamed(entry, None)]


def undecided_reason(state: State, undecided: int) -> str:
    if undecided:
        many = "1 position" if undecided == 1 else f"{undecided:,} positions"
        return f"{many} could not be decided{state.first_undecided}"
    left = state.pending.unfollowed
    was = "1 position was" if left == 1 else f"{left:,} positions were"
    return f"{was} not followed to the end, since too many were open"


def memory_notes(state: State) -> tuple[str, ...]:
    """Remarks about memory that was full."""
    if state.frame is None:
        return ()
    memories = [memory.seen if isinstance(memory, Awaiting) else memory for memory in state.frame.memory]
    tables = [table for table in memories if isinstance(table, Table)]
    lost = {"value": sum(table.evicted for table in tables), "event": sum(table.dropped for table in tables)}
    return tuple(
        f"1 {what} was evicted from memory" if number == 1 else f"{number:,} {what}s were evicted from memory"
        for what, number in lost.items()
        if number
    )


# -- because nothing can change ---------------------------------------------------------------------------------------


def is_settled(state: State, parts: Sequence[Conjunct], builder: Builder) -> bool:
    """Whether no further event can break the rule: then it is ok even on a recording that stopped early."""
    always = [part for part in parts if part.always]
    if state.pending.entries or (len(always) < len(parts) and not state.begun):
        return False
    return all(_settled_truth(part.body, state.frame, builder) is True for part in always)


def _settled_truth(formula: Formula, frame: Frame | None, builder: Builder, back: int = 0) -> bool | None:
    """Its truth at every position that could still come: `O p` once p was true. `back`: the number of `Y` around it."""

    def settled(part: Formula) -> bool | None:
        return evaluate(part, operator)

    def operator(part: Formula) -> bool | None:
        if frame is None or variables(part):
            return None
        match part:
            case Back(op="Y", of=of):
                # the next position is preceded by the last one, and the one before that by this frame's own `before`
                return _settled_truth(of, frame if back == 0 else frame.before, builder, back + 1)
            case Pair(op="S", left=left, right=right) if part in builder.settlers:
                lasts = builder.settlers[part](frame) is True and settled(left) is True
                return True if lasts or settled(right) is True else None
        settle = builder.settlers.get(part)
        return None if settle is None else settle(frame)

    return settled(formula)
