"""A formula as closures over frames.

Every part of a formula becomes a `Value`: (frame, values of the variables) → truth. Parts that look back have a slot in
each frame's memory, filled from the one before; parts that look ahead are numbered, and answer with a `Wait` that
`move` takes on. Negation is pushed inward where something looks ahead, and is Kleene's where nothing does.
"""

from __future__ import annotations

from collections.abc import Callable

from bylaw.engine.temporal.frame import (
    UNTIMED,
    Compilation,
    Frame,
    Lookahead,
    Matches,
    Value,
    clock,
    false,
    negate_value,
    true,
)
from bylaw.engine.temporal.past import build_back
from bylaw.engine.temporal.shape import fixes, looks_ahead, negate_formula, variables
from bylaw.engine.temporal.truth import Sigma, Truth, Wait, advance_residual, conj, disj, negate
from bylaw.engine.temporal.variables import Found, Hit, fixed_by, truth_of, variable_tests
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
    Window,
    children,
)


class Builder(Compilation):
    # -- any formula ----------------------------------------------------------------------------------------------

    def build(self, formula: Formula, positive: bool = True, scope: frozenset[str] = frozenset()) -> Value:
        """`scope`: variables that have a value wherever this is evaluated."""
        value = self._build(formula, positive, scope)
        if positive:
            self.values[formula] = value
        return value

    def _build(self, formula: Formula, positive: bool, scope: frozenset[str]) -> Value:
        if not positive and not looks_ahead(formula):
            return negate_value(self.build(formula, True, scope))
        match formula:
            case Not(of=of):
                return self.build(of, not positive, scope)
            case And(left=left, right=right):
                return (
                    self._build_conjunction(left, right, scope)
                    if positive
                    else self._build_implication(left, right, False, scope)
                )
            case Or(left=left, right=right):
                return self._build_junction(disj if positive else conj, left, positive, right, positive, scope)
            case Implies(left=left, right=right):
                return (
                    self._build_implication(left, right, True, scope)
                    if positive
                    else self._build_conjunction(left, negate_formula(right), scope)
                )
            case Iff(left=left, right=right):
                one = self._build_junction(disj, left, not positive, right, True, scope)
                two = self._build_junction(disj, left, positive, right, False, scope)
                return lambda frame, sigma: conj(one(frame, sigma), two(frame, sigma))
            case Ahead():
                return self._build_ahead(formula, positive, scope)
            case Pair(op="S") | Back() | Seen() | Count():
                self.back_depth += 1
                value = build_back(self, formula, positive, scope)
                self.back_depth -= 1
                return value
            case Pair():
                return self._pair(formula, positive, scope)
            case Constant(value=value):
                return true if value else false
            case _:
                return self._atom(formula)

    def _atom(self, formula: Formula) -> Value:
        number = self._numbers[formula]  # type: ignore[index]
        tests = variable_tests(formula, self.variable_numbers)  # type: ignore[arg-type]
        if not tests:
            return lambda frame, sigma: frame.atom_values[number]  # type: ignore[return-value]
        return lambda frame, sigma: truth_of(frame.atom_values[number], tests, sigma)

    def _build_junction(
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

    def _build_conjunction(self, left: Formula, right: Formula, scope: frozenset[str]) -> Value:
        if fixes(left) <= scope:
            return self._build_junction(conj, left, True, right, True, scope)
        matches, then = self.matches(left, scope), self.build(right, True, scope | fixes(left))

        def value(frame: Frame, sigma: Sigma) -> Truth:
            answer: Truth = False
            for fixed, truth, _ in matches(frame, sigma):
                answer = disj(answer, conj(truth, then(frame, fixed)))
            return answer

        return value

    def _build_implication(self, left: Formula, right: Formula, positive: bool, scope: frozenset[str]) -> Value:
        """left -> right, or left -> !right."""
        if fixes(left) <= scope:
            return self._build_junction(disj, left, False, right, positive, scope)
        if looks_ahead(left):
            return self._build_lookahead_implication(left, right if positive else negate_formula(right), scope)
        matches, then = self.matches(left, scope), self.build(right, positive, scope | fixes(left))

        def value(frame: Frame, sigma: Sigma) -> Truth:
            answer: Truth = True
            for fixed, truth, _ in matches(frame, sigma):
                answer = conj(answer, disj(negate(truth), then(frame, fixed)))  # type: ignore[arg-type]
            return answer

        return value

    def _build_lookahead_implication(self, left: Formula, right: Formula, scope: frozenset[str]) -> Value:
        """A left side that fixes variables and looks ahead, taken apart until what fixes does not look ahead."""
        match left:
            case And(left=first, right=rest):
                return self._build_implication(first, Implies(rest, right), True, scope)
            case Or(left=one, right=other):
                return self.build(And(Implies(one, right), Implies(other, right)), True, scope)
        raise AssertionError(left)

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
        tests = variable_tests(atom, self.variable_numbers)  # type: ignore[arg-type]

        def matches(frame: Frame, sigma: Sigma) -> list[Found]:
            value = frame.atom_values[number]
            if value is False:
                return []
            return [(sigma, value, ())] if not isinstance(value, Hit) else fixed_by(value, tests, sigma)

        return matches

    # -- looking ahead --------------------------------------------------------------------------------------------

    def _build_ahead(self, formula: Ahead, positive: bool, scope: frozenset[str]) -> Value:
        op = formula.op if positive else {"X": "N", "N": "X", "F": "G", "G": "F"}[formula.op]
        of = self.build(formula.of, positive, scope)
        left = {"F": true, "G": false}.get(op, of)
        kind = {"F": "U", "G": "R"}.get(op, op)
        return self._look_ahead(kind, left, of, formula, formula.window)

    def _pair(self, formula: Pair, positive: bool, scope: frozenset[str]) -> Value:
        left, right, op = formula.left, formula.right, str(formula.op)
        if op == "W":  # p W q is q R (p | q)
            left, right, op = formula.right, Or(formula.left, formula.right), "R"
        if not positive:
            op = {"U": "R", "R": "U"}[op]
        one, two = self.build(left, positive, scope), self.build(right, positive, scope)
        return self._look_ahead(op, one, two, formula, formula.window)

    def _look_ahead(self, op: str, left: Value, right: Value, formula: Formula, window: Window | None) -> Value:
        number = len(self.ahead)
        mentions = frozenset(self.variable_numbers[name] for name in variables(formula))
        self.ahead.append(Lookahead(op, left, right, window, op in "NR", self.back_depth > 0))
        if op in "XN":
            return lambda frame, sigma: Wait(number, self._mask_variables(sigma, mentions), 0)

        def start(frame: Frame, sigma: Sigma) -> Truth:
            since = 0 if window is None else clock(frame.clocks, window)
            wait = Wait(number, self._mask_variables(sigma, mentions), since)
            truth = self.go_on(wait, frame)
            # before the first recorded time it is unknown when a window closes
            return truth if since != UNTIMED or isinstance(truth, bool) else None

        return start

    def _mask_variables(self, sigma: Sigma, mentions: frozenset[int]) -> Sigma:
        """Variables that the formula does not mention do not make two waits different."""
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
        return advance_residual(residual, lambda wait: self.go_on(wait, frame))

    def ended(self, residual: Truth) -> bool | None:
        """The truth of a residual if no position follows."""
        return advance_residual(residual, lambda wait: self.ahead[wait.node].at_end)  # type: ignore[return-value]
