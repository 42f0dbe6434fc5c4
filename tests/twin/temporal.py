"""The slow, obvious twin of temporal rules: the tables of `docs/reference/temporal.md`, by recursion over positions.

`Prefix.value` is the meaning of a formula at a position: true, false or None (unknown). On a prefix with more to come,
what lies beyond it is unknown. `judge_temporal` asks for each position where the shortest prefix stands that makes the
formula false there: that is the position that decides.
"""

from __future__ import annotations

import operator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bylaw.engine.temporal.shape import can_skip, parts_of
from bylaw.model.demand import Temporal
from bylaw.model.events import Response, ToolCall, ToolResult
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
)
from bylaw.model.verdict import Outcome
from tests.twin.atoms import Env, Timeline, Truth, Way, all_of, any_of, negate, ways, ways_of

if TYPE_CHECKING:
    from tests.twin.part import Answer, Breaches, Part

_ATOMS = (ToolIs, ResultOf, StopsFor, Says, UserSays, AgentIs, Constant)
_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Prefix:
    """The first `length` positions, and whether more may come."""

    def __init__(self, timeline: Timeline, length: int, *, more: bool) -> None:
        self.timeline = timeline
        self.length = length
        self.more = more
        self._known: dict[tuple[int, int, str], tuple[Formula, Truth]] = {}
        """holds the formula too, since the id of one that is gone may be given to another"""

    def value(self, formula: Formula, i: int, env: Env) -> Truth:
        key = (id(formula), i, repr(env) if env else "")
        if key not in self._known:
            self._known[key] = formula, self._value(formula, i, env)
        return self._known[key][1]

    def _value(self, formula: Formula, i: int, env: Env) -> Truth:
        match formula:
            case Not(of=p):
                return negate(self.value(p, i, env))
            case And(left=p, right=q):
                return any_of(all_of((truth, self.value(q, i, known))) for known, truth in self.ways(p, i, env))
            case Or(left=p, right=q):
                return any_of((self.value(p, i, env), self.value(q, i, env)))
            case Implies(left=p, right=q):
                found = self.ways(p, i, env)
                return all_of(any_of((negate(truth), self.value(q, i, known))) for known, truth in found)
            case Iff(left=p, right=q):
                left, right = self.value(p, i, env), self.value(q, i, env)
                return None if left is None or right is None else left is right
            case Ahead():
                return self._ahead(formula, i, env)
            case Back():
                return self._back(formula, i, env)
            case Pair():
                return self._since(formula, i, env) if formula.op == "S" else self._until(formula, i, env)
            case Seen():
                return self._seen(formula, i, env)
            case Count():
                return self._count(formula, i, env)
            case _:
                return any_of(truth for _, truth in self.ways(formula, i, env))

    # Variables: what the left side fixes, the right side sees

    def ways(self, formula: Formula, i: int, env: Env) -> list[Way]:
        """How the formula may hold, each way with the variables that it fixes."""
        match formula:
            case And(left=p, right=q):
                return [
                    (after, both)
                    for known, truth in self.ways(p, i, env)
                    for after, right in self.ways(q, i, known)
                    if (both := all_of((truth, right))) is not False
                ]
            case Or(left=p, right=q):
                return self.ways(p, i, env) + self.ways(q, i, env)
            case _ if isinstance(formula, _ATOMS):
                return ways(formula, self.timeline.positions[i], env, self.timeline)
            case _:
                truth = self.value(formula, i, env)
                return [] if truth is False else [(env, truth)]

    # Operators, as the tables say

    def _ahead(self, formula: Ahead, i: int, env: Env) -> Truth:
        if formula.op in ("X", "N"):
            if i + 1 < self.length:
                return self.value(formula.of, i + 1, env)
            return None if self.more else formula.op == "N"
        looks = range(i, self.length)
        inside = [self._inside(i, j, formula.window) for j in looks]
        values = [self.value(formula.of, j, env) for j in looks]
        rest: list[Truth] = [None] if self._goes_on(i, formula.window) else []
        if formula.op == "F":
            return any_of([all_of(pair) for pair in zip(inside, values, strict=True)] + rest)
        return all_of([any_of((negate(near), value)) for near, value in zip(inside, values, strict=True)] + rest)

    def _back(self, formula: Back, i: int, env: Env) -> Truth:
        if formula.op == "Y":
            return self.value(formula.of, i - 1, env) if i > 0 else False
        inside = [self._inside(i, j, formula.window) for j in range(i + 1)]
        values = [self.value(formula.of, j, env) for j in range(i + 1)]
        if formula.op == "O":
            return any_of(all_of(pair) for pair in zip(inside, values, strict=True))
        return all_of(any_of((negate(near), value)) for near, value in zip(inside, values, strict=True))

    def _since(self, formula: Pair, i: int, env: Env) -> Truth:
        answer: Truth = False
        for j in range(i + 1):
            begins = all_of((self._inside(i, j, formula.window), self.value(formula.right, j, env)))
            answer = any_of((begins, all_of((self.value(formula.left, j, env), answer))))
        return answer

    def _until(self, formula: Pair, i: int, env: Env) -> Truth:
        answer: Truth = None if self._goes_on(i, formula.window) else formula.op != "U"
        for j in reversed(range(i, self.length)):
            near, p, q = self._inside(i, j, formula.window), *self._both(formula, j, env)
            if formula.op == "U":
                answer = any_of((all_of((near, q)), all_of((p, answer))))
            elif formula.op == "R":
                answer = all_of((any_of((negate(near), q)), any_of((p, answer))))
            else:  # p W q is q R (p | q)
                answer = all_of((any_of((negate(near), p, q)), any_of((q, answer))))
        return answer

    def _both(self, formula: Pair, j: int, env: Env) -> tuple[Truth, Truth]:
        return self.value(formula.left, j, env), self.value(formula.right, j, env)

    def _seen(self, formula: Seen, i: int, env: Env) -> Truth:
        return any_of(
            all_of((self._inside(i, j, formula.window), truth))
            for j, result in self.timeline.seen_at(i)
            for _, truth in ways_of(formula.of, result, env)
        )

    def _count(self, formula: Count, i: int, env: Env) -> Truth:
        values = [all_of((self._inside(i, j, formula.window), self.value(formula.of, j, env))) for j in range(i + 1)]
        possible = range(values.count(True), values.count(True) + values.count(None) + 1)
        answers = {bool(_COMPARE[formula.op](number, formula.number)) for number in possible}
        return answers.pop() if len(answers) == 1 else None

    # Windows

    def _inside(self, i: int, j: int, window: Window | None) -> Truth:
        """Whether position j is in the window of position i; unknown where either has no clock."""
        if window is None or i == j:
            return True
        here, there = (self.timeline.positions[k].clock(window.unit) for k in (i, j))
        return None if here is None or there is None else abs(here - there) <= window.bound

    def _goes_on(self, i: int, window: Window | None) -> bool:
        """Whether positions still to come may be in the window: clocks never go backwards."""
        return self.more and self._inside(i, self.length - 1, window) is not False


# -- the rule ---------------------------------------------------------------------------------------------------------


def judge_temporal(demand: Temporal, part: Part, matching: list[Response] | None) -> Answer:
    """The outcome in one scope, and the turns at which the rule is broken. Without `matching` turns all are judged."""
    timeline = _timeline(demand, part)
    stops = (_first_untimed(demand.formula, timeline), _first_unordered(demand, timeline))
    stop = min((stop for stop in stops if stop is not None), default=None)
    judge = _Judge(timeline, len(timeline.positions) if stop is None else stop, part.complete and stop is None)
    wanted = None if matching is None else {turn.turn for turn in matching}
    judged = [i for i in range(judge.length) if wanted is None or timeline.positions[i].event.turn in wanted]
    answers = [judge.part(formula, judged) for formula in split(demand.formula)]
    breaches = [turn for broken, _, _ in answers for turn in broken]
    if breaches:
        return Outcome.VIOLATED, breaches
    if stop is not None or _has_late_results(demand, timeline) or not all(decided for _, decided, _ in answers):
        return Outcome.INCONCLUSIVE, []
    if any(triggered for _, _, triggered in answers):
        return Outcome.OK, []
    return (Outcome.VACUOUS if part.complete else Outcome.INCONCLUSIVE), []


def _has_late_results(demand: Temporal, timeline: Timeline) -> bool:
    """With `over: turns`: results that belong to no position any more, and could matter."""
    shown = [one for position in timeline.positions for one in position.shown]
    events = timeline.part.events if demand.over == "turns" else []
    late = [e for e in events if isinstance(e, ToolResult) and not any(e is one for one in shown)]
    atoms = [atom for atom in _bare_atoms(demand.formula) if isinstance(atom, ResultOf)]
    return any(ways_of(atom, result, {}) for atom in atoms for result in late)


def value_at_start(demand: Temporal, part: Part) -> Truth:
    """The formula as a whole, at the first position of a complete scope."""
    timeline = _timeline(demand, part)
    return Prefix(timeline, len(timeline.positions), more=False).value(demand.formula, 0, {})


def _timeline(demand: Temporal, part: Part) -> Timeline:
    skips = demand.over == "events" and can_skip(demand.formula, parts_of(demand.formula))
    return Timeline(part, demand.over, _bare_atoms(demand.formula), skips=skips)


def split(formula: Formula) -> list[Formula]:
    """The parts that are judged on their own: what `&` joins at the top, unless a variable reaches across it."""
    match formula:
        case And(left=p, right=q) if not _fixed_by(p) & _variables(q):
            return split(p) + split(q)
        case Not(of=Or(left=p, right=q)):
            return split(Not(p)) + split(Not(q))
        case Not(of=Implies(left=p, right=q)) if not _fixed_by(p) & _variables(q):
            return split(p) + split(Not(q))
        case Not(of=Not(of=p)):
            return split(p)
        case _:
            return [formula]


def _body(formula: Formula) -> Formula | None:
    """What has to hold at every position, where that is what the formula says."""
    match formula:
        case Ahead(op="G", of=p, window=None):
            return p
        case Not(of=Ahead(op="F", of=p, window=None)):
            return Not(p)
        case _:
            return None


class _Judge:
    def __init__(self, timeline: Timeline, length: int, complete: bool) -> None:
        self.timeline, self.length, self.complete = timeline, length, complete
        self._prefixes = [Prefix(timeline, n, more=True) for n in range(length + 1)]
        self._whole = Prefix(timeline, length, more=not complete)

    def part(self, formula: Formula, judged: list[int]) -> tuple[Breaches, bool, bool]:
        """Where a part is broken, whether it is decided everywhere, and whether it was judged at all."""
        body = _body(formula)
        if body is None:
            answers = [self._at(formula, i, None) for i in judged[:1]]
            return [turn for broken, _ in answers for turn in broken], all(d for _, d in answers), bool(answers)
        answers = [self._at(body, i, self.timeline.positions[i].event.turn) for i in judged]
        decided = all(d for _, d in answers) and (self.complete or self.settled(body, self.length) is True)
        triggers = body.left if isinstance(body, Implies) and not _looks_ahead(body.left) else Constant(True)
        triggered = any(self._whole.value(triggers, i, {}) is not False for i in judged)
        return [turn for broken, _ in answers for turn in broken], decided, triggered

    def _at(self, formula: Formula, i: int, at_the_end: int | None) -> tuple[Breaches, bool]:
        """The turn that breaks the formula at a position, if one does, and whether anything is decided."""
        for n in range(i + 1, self.length + 1):
            value = self._prefixes[n].value(formula, i, {})
            if value is not None:
                return ([] if value else [self.timeline.positions[n - 1].event.turn]), True
        value = self._whole.value(formula, i, {})
        return ([at_the_end] if value is False else []), value is not None

    def settled(self, formula: Formula, start: int) -> Truth:
        """The value that the formula has at every position from `start` on, whatever comes."""
        known = [j for j in range(self.length) if j <= start]
        match formula:
            case Constant(value=value):
                return value
            case Not(of=p):
                return negate(self.settled(p, start))
            case And(left=p, right=q):
                return all_of((self.settled(p, start), self.settled(q, start)))
            case Or(left=p, right=q):
                return any_of((self.settled(p, start), self.settled(q, start)))
            case Implies(left=p, right=q):
                return any_of((negate(self.settled(p, start)), self.settled(q, start)))
            case Iff(left=p, right=q):
                left, right = self.settled(p, start), self.settled(q, start)
                return None if left is None or right is None else left is right
            case _ if _variables(formula):
                return None
            case Back(op="Y", of=p):
                return self.settled(p, start - 1)
            case Back(op="O", of=p, window=None):
                return True if any(self._whole.value(p, j, {}) for j in known) else None
            case Back(op="H", of=p, window=None):
                return False if any(self._whole.value(p, j, {}) is False for j in known) else None
            case Pair(op="S", left=p, right=q, window=None):
                holds = bool(known) and self._whole.value(formula, known[-1], {}) is True
                return True if self.settled(q, start) or (holds and self.settled(p, start)) else None
            case _:
                return None


def _first_untimed(formula: Formula, timeline: Timeline) -> int | None:
    """The first position that matters to a rule with windows in time and has no time."""
    inside = _all_inside(formula)
    if not any(window.unit == "seconds" for f in inside if (window := getattr(f, "window", None)) is not None):
        return None
    return next((i for i, p in enumerate(timeline.positions) if p.event.time is None and p.matters), None)


def _first_unordered(demand: Temporal, timeline: Timeline) -> int | None:
    """The first call of which nobody knows whether it came before a result, where the rule could tell the two apart."""
    if demand.over == "turns":
        return None
    atoms = [atom for atom in _all_inside(demand.formula) if isinstance(atom, ResultOf)]
    skips = can_skip(demand.formula, parts_of(demand.formula))
    for i, position in enumerate(timeline.positions):
        beside = position.event.unordered if isinstance(position.event, ToolCall) else ()
        names = [name for atom in atoms for name in atom.names]
        known = any(tool == "*" or fnmatchcase(tool, name) for name in names for tool in beside)
        if beside and (not skips or (position.matters and known)):
            return i
    return None


def _bare_atoms(formula: Formula) -> list[Atom]:
    found = [f for f in _all_inside(formula) if isinstance(f, _ATOMS) and not isinstance(f, Constant)]
    return [_without_variables(atom) for atom in found]


def _without_variables(atom: Atom) -> Atom:
    """Any value could be the one: only the rest can tell that the atom is false."""
    if not isinstance(atom, ToolIs | ResultOf):
        return atom
    return replace(atom, tests=tuple(test for test in atom.tests if not isinstance(test.value, Variable)))


def _looks_ahead(formula: Formula) -> bool:
    return any(isinstance(f, Ahead) or (isinstance(f, Pair) and f.op != "S") for f in _all_inside(formula))


def _all_inside(formula: Formula) -> list[Formula]:
    return [formula, *(inner for child in children(formula) for inner in _all_inside(child))]


def _variables(formula: Formula) -> set[str]:
    tests = [test for f in _all_inside(formula) if isinstance(f, ToolIs | ResultOf) for test in f.tests]
    return {test.value.name for test in tests if isinstance(test.value, Variable)}


def _fixed_by(formula: Formula) -> set[str]:
    """The variables that the right side sees after this on the left."""
    if isinstance(formula, And | Or):
        return _fixed_by(formula.left) | _fixed_by(formula.right)
    return _variables(formula) if isinstance(formula, ToolIs | ResultOf) else set()
