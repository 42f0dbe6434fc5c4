"""Which rules contradict each other, can never be kept, or are never triggered?

Each rule in the propositional fragment becomes an automaton; a search over one, or over two side by side, answers with
the shortest trace that shows the point. Rules outside the fragment are named, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from bylaw.engine.compile import Prevention, compile_rules
from bylaw.engine.matching import is_glob
from bylaw.engine.temporal.automaton import Automaton, NotAnalysed, all_satisfied, shortest, why_not
from bylaw.lint.rule_set import remarks
from bylaw.model.demand import Before, Calls, Never, Tally, Temporal, looks_at_arguments
from bylaw.model.diagnostic import Diagnostic, Related
from bylaw.model.rule import Rule
from bylaw.model.source import Span
from bylaw.model.temporal import Ahead, And, Back, Formula, Implies, Not, ToolIs

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
    """rule id → what a live guard can do about it"""
    pairs_left: int = 0
    """pairs that were not looked at"""


class _Machine(Struct):
    rule: Rule
    automaton: Automaton
    formula: Formula


class _Patient(Automaton):
    """An automaton that a search follows after it was broken."""

    def is_broken(self, state: tuple[object, ...]) -> bool:
        return False


def analyse(rules: Sequence[Rule], excerpt: Excerpt = lambda span: None) -> Analysis:
    program = compile_rules(rules)
    labels = {rule.id: label for rule, label in zip(rules, program.prevention, strict=True)}
    analysis = Analysis([], [], {}, labels)
    machines = list(_machines(rules, analysis))
    sound = [machine for machine in machines if _examine(machine, analysis, excerpt)]
    related = [pair for pair in combinations(sound, 2) if _can_meet(*pair)]
    for one, other in related[:MOST_PAIRS]:
        _compare(one, other, analysis, excerpt)
    analysis.pairs_left = max(0, len(related) - MOST_PAIRS)
    analysis.findings += (
        _found(one.rule, excerpt, code=one.code, message=one.message, help=one.help, other=one.other, warns=True)
        for one in remarks(rules)
    )
    analysis.findings.sort(key=Diagnostic.sort_key)
    return analysis


def _machines(rules: Sequence[Rule], analysis: Analysis) -> Iterator[_Machine]:
    for rule in rules:
        formula = as_formula(rule)
        if isinstance(formula, str):
            analysis.not_analysed[rule.id] = formula
        else:
            analysis.analysed.append(rule.id)
            yield _Machine(rule, Automaton(formula), formula)


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
            return _always(Not(ToolIs(tools)))
        case Before(first=first, second=second, only_if_both=False):
            return _always(Implies(ToolIs(second.tools), _before(ToolIs(first.tools))))
        case Tally(measure=Calls(tools=tools), at_most=1, at_least=1):
            once = _always(Implies(ToolIs(tools), Not(_before(ToolIs(tools)))))
            return And(Ahead("F", ToolIs(tools)), once)
        case _:
            return f"contradiction analysis does not support `{rule.kind}`"


def _always(formula: Formula) -> Formula:
    return Ahead("G", formula)


def _before(formula: Formula) -> Formula:
    return Back("Y", Back("O", formula))


# -- one rule ---------------------------------------------------------------------------------------------------------


def _examine(machine: _Machine, analysis: Analysis, excerpt: Excerpt) -> bool:
    """Whether the rule can be kept at all, and has something to judge."""
    rule, automaton = machine.rule, machine.automaton
    try:
        keeping = shortest([automaton], all_satisfied([automaton]))
        fires = shortest([automaton], lambda states: automaton.has_fired(states[0]))
        broken = shortest([automaton], lambda states: automaton.is_broken(states[0]))
    except NotAnalysed as why:
        _give_up(rule, str(why), analysis)
        return False
    if keeping is None:
        help = f"even {_trace(broken)} breaks it" if broken else "every trace breaks it at the end"
        message = f"no trace can keep `{rule.id}`"
        analysis.findings.append(_found(rule, excerpt, code="impossible-rule", message=message, help=help))
        return False
    if fires is None:
        message = f"`{rule.id}` is never triggered"
        help = f"no trace triggers it; {_trace(keeping)} does not"
        analysis.findings.append(_found(rule, excerpt, code="idle-rule", message=message, help=help, warns=True))
    elif broken is None and not _can_end_badly(automaton):
        message = f"no trace can break `{rule.id}`"
        help = f"{_trace(fires)} triggers it, and no later event can break it"
        analysis.findings.append(_found(rule, excerpt, code="idle-rule", message=message, help=help, warns=True))
    return True


def _can_end_badly(automaton: Automaton) -> bool:
    return shortest([automaton], lambda states: not automaton.is_satisfied(states[0])) is not None


def _give_up(rule: Rule, why: str, analysis: Analysis) -> None:
    analysis.analysed.remove(rule.id)
    analysis.not_analysed[rule.id] = why


# -- two rules --------------------------------------------------------------------------------------------------------


def _can_meet(one: _Machine, other: _Machine) -> bool:
    """Rules about different things cannot contradict each other."""
    if one.rule.scope is not other.rule.scope:
        return False
    mine, theirs = set(_names(one.automaton)), set(_names(other.automaton))
    return bool(mine & theirs) or any(map(is_glob, mine | theirs))


def _names(automaton: Automaton) -> Iterator[str]:
    for atom in automaton.atoms:
        yield from getattr(atom, "names", (type(atom).__name__,))


def _compare(one: _Machine, other: _Machine, analysis: Analysis, excerpt: Excerpt) -> None:
    machines = [one.automaton, other.automaton]
    try:
        both = shortest(machines, all_satisfied(machines))
        if both is None:
            _report_contradiction(one, other, analysis, excerpt)
            return
        for quiet, ruling in ((one, other), (other, one)):
            if not _report_silenced(quiet, ruling, analysis, excerpt) and _report_shadowed(
                quiet, ruling, analysis, excerpt
            ):
                return  # of two rules that demand the same, one is reported
    except NotAnalysed as why:
        analysis.not_analysed.setdefault(f"{one.rule.id} with {other.rule.id}", str(why))


def _report_contradiction(one: _Machine, other: _Machine, analysis: Analysis, excerpt: Excerpt) -> None:
    keeping = shortest([other.automaton], all_satisfied([other.automaton]))
    message = f"no trace can keep both `{one.rule.id}` and `{other.rule.id}`"
    help = f"the shortest trace that keeps `{other.rule.id}` is {_trace(keeping)}, which breaks `{one.rule.id}`"
    found = _found(other.rule, excerpt, code="contradicting-rules", message=message, help=help, other=one.rule)
    analysis.findings.append(found)


def _report_shadowed(narrow: _Machine, wide: _Machine, analysis: Analysis, excerpt: Excerpt) -> bool:
    """A rule that every trace keeps that keeps the other one, which is no less severe."""
    if wide.rule.severity.rank < narrow.rule.severity.rank or wide.rule.demand == narrow.rule.demand:
        return False
    theirs = set(_names(wide.automaton))
    if not (theirs.issuperset(_names(narrow.automaton)) or any(map(is_glob, theirs))):
        return False  # it is about something else too, so it is hardly ever weaker, and a search takes long
    if not _can_end_badly(narrow.automaton):
        return False
    patient = _Patient(narrow.formula)
    machines = [patient, wide.automaton]
    apart = shortest(
        machines, lambda states: wide.automaton.is_satisfied(states[1]) and not patient.is_satisfied(states[0])
    )
    if apart is not None:
        return False
    message = f"`{narrow.rule.id}` is weaker than `{wide.rule.id}`, or says the same"
    help = f"it is broken only where `{wide.rule.id}` is broken too"
    found = _found(narrow.rule, excerpt, code="shadowed-rule", message=message, help=help, other=wide.rule, warns=True)
    analysis.findings.append(found)
    return True


def _report_silenced(quiet: _Machine, ruling: _Machine, analysis: Analysis, excerpt: Excerpt) -> bool:
    """A rule that has something to judge only in traces that break the other."""
    machines = [quiet.automaton, ruling.automaton]
    fires = shortest([quiet.automaton], lambda states: quiet.automaton.has_fired(states[0]))
    if fires is None or shortest(machines, _fired_and_satisfied(quiet, ruling)) is not None:
        return False
    message = f"`{quiet.rule.id}` is triggered only if `{ruling.rule.id}` is broken"
    help = f"the shortest trace that triggers it is {_trace(fires)}"
    found = _found(quiet.rule, excerpt, code="silenced-rule", message=message, help=help, other=ruling.rule, warns=True)
    analysis.findings.append(found)
    return True


def _fired_and_satisfied(quiet: _Machine, ruling: _Machine) -> Callable[[tuple[tuple[object, ...], ...]], bool]:
    return lambda states: quiet.automaton.has_fired(states[0]) and ruling.automaton.is_satisfied(states[1])


def _trace(steps: list[str] | None) -> str:
    return "an empty trace" if not steps else "`" + ", ".join(steps) + "`"


def _found(
    rule: Rule,
    excerpt: Excerpt,
    *,
    code: str,
    message: str,
    help: str,
    other: Rule | None = None,
    warns: bool = False,
) -> Diagnostic:
    span = rule.span
    return Diagnostic(
        code=code,
        message=message,
        severity="warning" if warns else "error",
        file=span.file if span is not None else "<rules>",
        span=span,
        excerpt=excerpt(span) if span is not None else None,
        help=help,
        related=() if other is None or other.span is None else (Related(other.span, f"`{other.id}` is defined"),),
    )
