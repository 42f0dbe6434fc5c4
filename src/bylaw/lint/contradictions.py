"""Finds rules that contradict each other, can never hold, or are never triggered.

Each rule in the propositional fragment becomes an automaton; a search over one, or over two side by side, answers with
the shortest trace that shows the point. Rules outside the fragment are named, with the reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.engine.compile import Prevention, compile_rules
from bylaw.engine.matching import compile_names, is_glob
from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.frame import START, Frame
from bylaw.engine.temporal.shape import atoms, parts_of, variables, windows, yesterdays
from bylaw.engine.temporal.truth import Truth, conj
from bylaw.lint.rule_set import remarks
from bylaw.model.demand import Before, Calls, Never, Tally, Temporal, looks_at_arguments
from bylaw.model.diagnostic import Diagnostic, Related, Span
from bylaw.model.rule import Rule
from bylaw.model.temporal import (
    Ahead,
    And,
    Atom,
    Back,
    Count,
    Formula,
    Implies,
    Not,
    ResultOf,
    Seen,
    StopsFor,
    ToolIs,
    walk,
)

# -- automaton ---------------------------------------------------------------------------------------------------------

# A rule as an automaton over abstract positions, built as it is walked: only formulas whose truth depends on finitely
# much: no variables, no windows, no `seen` or `count`, positions that are events. An abstract event is one kind of
# position: a call of a tool, a result of one, a response, with a truth value for every atom. Atoms that ask more than a
# name (arguments, text) may be true or not, independent of the others; that only adds positions, so that what no trace
# over these events can do, no real trace can do.


MOST_EVENTS = 256
MOST_STATES = 4_000
"""states of one search; beyond that the rules are reported as not analysed"""

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
        return tuple(frame.memory), _trim_frame(now, self._depth), owed, True, fired

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


def _trim_frame(frame: Any, depth: int) -> Any:
    if depth == 0 or frame is None:
        return None
    return (frame[0], frame[1], _trim_frame(frame[2], depth - 1))


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
        yield from _events_for_name(
            f"{what} {name}", [atom for atom in found if compile_names(Calls(atom.names))(name)]
        )
    globbed = [atom for atom in found if any(map(is_glob, atom.names))]
    for some in filter(None, _subsets(globbed)):
        shown = " and ".join(atom.names[0] for atom in some)
        yield from _events_for_name(f"{what} a tool like {shown}", some)


def _events_for_name(name: str, found: Sequence[Atom]) -> Iterator[AbstractEvent]:
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


def satisfaction_test(machines: Machines) -> Callable[[tuple[State, ...]], bool]:
    return lambda states: all(m.is_satisfied(s) for m, s in zip(machines, states, strict=True))


# -- contradictions ----------------------------------------------------------------------------------------------------


MOST_PAIRS = 2_000
"""pairs that are searched; the report counts the pairs of a larger rule set that were left out"""

Excerpt = Callable[[Span], str | None]
"""the source line that a span starts on"""


class Analysis(Struct):
    findings: list[Diagnostic]
    analysed: list[str]
    not_analysed: dict[str, str]
    """rule id → why not"""
    prevention: dict[str, Prevention]
    """rule id → whether a live guard can prevent violations"""
    pairs_left: int = 0
    """pairs that were not looked at"""


class _Machine(Struct):
    rule: Rule
    automaton: Automaton
    formula: Formula


class _TolerantAutomaton(Automaton):
    """An automaton that a search follows after it was broken."""

    def is_broken(self, state: State) -> bool:
        return False


def analyse(rules: Sequence[Rule], excerpt: Excerpt = lambda span: None) -> Analysis:
    program = compile_rules(rules)
    labels = {rule.id: label for rule, label in zip(rules, program.prevention, strict=True)}
    analysis = Analysis([], [], {}, labels)
    report = _Report(analysis, excerpt)
    machines = []
    for rule in rules:
        formula = as_formula(rule)
        if isinstance(formula, str):
            analysis.not_analysed[rule.id] = formula
        else:
            analysis.analysed.append(rule.id)
            machines.append(_Machine(rule, Automaton(formula), formula))
    sound = [machine for machine in machines if report.examine(machine)]
    related = [pair for pair in combinations(sound, 2) if _can_share_events(*pair)]
    for one, other in related[:MOST_PAIRS]:
        report.compare(one, other)
    analysis.pairs_left = max(0, len(related) - MOST_PAIRS)
    for remark in remarks(rules):
        report.add(remark.rule, remark.message, remark.help, code=remark.code, other=remark.other, warns=True)
    analysis.findings.sort(key=Diagnostic.sort_key)
    return analysis


def as_formula(rule: Rule) -> Formula | str:
    """The rule as a formula of the fragment, or why it is none."""
    if rule.when:
        return "it has `when`"
    if any(looks_at_arguments(rule.demand)):
        return "it looks at arguments"
    match rule.demand:
        case Temporal() as demand:
            return why_not(demand) or demand.formula
        case Never(probe=Calls(tools=tools)):
            return Ahead("G", Not(ToolIs(tools)))
        case Before(first=first, second=second, only_if_both=False):
            return Ahead("G", Implies(ToolIs(second.tools), _occurred_before(ToolIs(first.tools))))
        case Tally(measure=Calls(tools=tools), at_most=1, at_least=1):
            once = Ahead("G", Implies(ToolIs(tools), Not(_occurred_before(ToolIs(tools)))))
            return And(Ahead("F", ToolIs(tools)), once)
        case _:
            return f"contradiction analysis does not support `{rule.kind}`"


def _occurred_before(formula: Formula) -> Formula:
    return Back("Y", Back("O", formula))


def _can_share_events(one: _Machine, other: _Machine) -> bool:
    """Rules about different things cannot contradict each other."""
    if one.rule.scope is not other.rule.scope:
        return False
    mine, theirs = set(_names(one.automaton)), set(_names(other.automaton))
    return bool(mine & theirs) or any(map(is_glob, mine | theirs))


def _names(automaton: Automaton) -> Iterator[str]:
    for atom in automaton.atoms:
        yield from getattr(atom, "names", (type(atom).__name__,))


def _can_end_badly(automaton: Automaton) -> bool:
    return shortest([automaton], lambda states: not automaton.is_satisfied(states[0])) is not None


def _first_firing(automaton: Automaton) -> list[str] | None:
    return shortest([automaton], lambda states: automaton.has_fired(states[0]))


def _trace(steps: list[str] | None) -> str:
    return "an empty trace" if not steps else "`" + ", ".join(steps) + "`"


class _Report:
    """Adds to an analysis what searches find about one rule, or about two."""

    def __init__(self, analysis: Analysis, excerpt: Excerpt) -> None:
        self._analysis = analysis
        self._excerpt = excerpt

    def add(
        self, rule: Rule, message: str, help: str, *, code: str, other: Rule | None = None, warns: bool = False
    ) -> None:
        span = rule.span
        found = Diagnostic(
            code=code,
            message=message,
            severity="warning" if warns else "error",
            file=span.file if span is not None else "<rules>",
            span=span,
            excerpt=self._excerpt(span) if span is not None else None,
            help=help,
            related=() if other is None or other.span is None else (Related(other.span, f"`{other.id}` is defined"),),
        )
        self._analysis.findings.append(found)

    # -- one rule ------------------------------------------------------------------------------------------------------

    def examine(self, machine: _Machine) -> bool:
        """Whether the rule can be kept at all, and has something to judge."""
        rule, automaton = machine.rule, machine.automaton
        try:
            keeping = shortest([automaton], satisfaction_test([automaton]))
            fires = _first_firing(automaton)
            broken = shortest([automaton], lambda states: automaton.is_broken(states[0]))
        except NotAnalysed as why:
            self._analysis.analysed.remove(rule.id)
            self._analysis.not_analysed[rule.id] = str(why)
            return False
        if keeping is None:
            help = f"even {_trace(broken)} breaks it" if broken else "every trace breaks it at the end"
            self.add(rule, f"no trace can keep `{rule.id}`", help, code="impossible-rule")
            return False
        if fires is None:
            help = f"no trace triggers it; {_trace(keeping)} does not"
            self.add(rule, f"`{rule.id}` is never triggered", help, code="idle-rule", warns=True)
        elif broken is None and not _can_end_badly(automaton):
            help = f"{_trace(fires)} triggers it, and no later event can break it"
            self.add(rule, f"no trace can break `{rule.id}`", help, code="idle-rule", warns=True)
        return True

    # -- two rules -----------------------------------------------------------------------------------------------------

    def compare(self, one: _Machine, other: _Machine) -> None:
        machines = [one.automaton, other.automaton]
        try:
            if shortest(machines, satisfaction_test(machines)) is None:
                keeping = _trace(shortest(machines[1:], satisfaction_test(machines[1:])))
                message = f"no trace can keep both `{one.rule.id}` and `{other.rule.id}`"
                help = f"the shortest trace that keeps `{other.rule.id}` is {keeping}, which breaks `{one.rule.id}`"
                self.add(other.rule, message, help, code="contradicting-rules", other=one.rule)
                return
            for quiet, ruling in ((one, other), (other, one)):
                if not self._is_silenced(quiet, ruling) and self._is_shadowed(quiet, ruling):
                    return  # of two rules that demand the same, one is reported
        except NotAnalysed as why:
            self._analysis.not_analysed.setdefault(f"{one.rule.id} with {other.rule.id}", str(why))

    def _is_shadowed(self, narrow: _Machine, wide: _Machine) -> bool:
        """A rule that every trace keeps that keeps the other one, which is no less severe."""
        if wide.rule.severity.rank < narrow.rule.severity.rank or wide.rule.demand == narrow.rule.demand:
            return False
        theirs = set(_names(wide.automaton))
        if not (theirs.issuperset(_names(narrow.automaton)) or any(map(is_glob, theirs))):
            return False  # it is about something else too, so it is hardly ever weaker, and a search takes long
        if not _can_end_badly(narrow.automaton):
            return False
        patient, ruling = _TolerantAutomaton(narrow.formula), wide.automaton
        if shortest([patient, ruling], lambda s: ruling.is_satisfied(s[1]) and not patient.is_satisfied(s[0])):
            return False
        message = f"`{narrow.rule.id}` is weaker than `{wide.rule.id}`, or says the same"
        help = f"it is broken only where `{wide.rule.id}` is broken too"
        self.add(narrow.rule, message, help, code="shadowed-rule", other=wide.rule, warns=True)
        return True

    def _is_silenced(self, quiet: _Machine, ruling: _Machine) -> bool:
        """A rule that has something to judge only in traces that break the other."""
        one, other = quiet.automaton, ruling.automaton
        fires = _first_firing(one)
        if fires is None or shortest([one, other], lambda s: one.has_fired(s[0]) and other.is_satisfied(s[1])):
            return False
        message = f"`{quiet.rule.id}` is triggered only if `{ruling.rule.id}` is broken"
        help = f"the shortest trace that triggers it is {_trace(fires)}"
        self.add(quiet.rule, message, help, code="silenced-rule", other=ruling.rule, warns=True)
        return True
