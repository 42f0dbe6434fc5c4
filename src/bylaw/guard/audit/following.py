"""Rules that look at what is not written down. No replay can follow them, and none pretends to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.engine.matching import compile_names
from bylaw.engine.temporal.shape import atoms, walk
from bylaw.guard.decide.hiding import Place
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.truths import meets
from bylaw.model.demand import (
    Always,
    Before,
    Calls,
    FitsSchema,
    Never,
    Sometime,
    StopReasonIn,
    Tally,
    Temporal,
    Turns,
)
from bylaw.model.events import Event
from bylaw.model.rule import Rule
from bylaw.model.temporal import ResultOf, Says, Seen, ToolIs, UserSays


def looking_at_arguments(policy: CompiledPolicy, tool: str, places: Sequence[Place]) -> Iterator[str]:
    """Behaviour rules that compare what stood at one of these places in a call of the tool."""
    for rule in policy.calls.rules:
        for atom in _about(rule, tool):
            if any(test.root == "args" and meets(test.path, place) for test in atom.tests for place in places):
                yield rule.id


def looking_at_result(policy: CompiledPolicy, tool: str | None) -> Iterator[str]:
    for rule in policy.calls.rules:
        if any(test.root != "args" for atom in _about(rule, tool) for test in atom.tests):
            yield rule.id


def looking_at_event(policy: CompiledPolicy, event: Event, *, redacted: bool) -> Iterator[str]:
    """Of what was said, the text, the stop reason and the model are written down, without secrets."""
    for index, _, _ in policy.calls.route(event).session:
        rule = policy.calls.rules[index]
        if not is_written(rule) or (redacted and looks_at_text(rule)):
            yield rule.id


def _about(rule: Rule, tool: str | None) -> list[ToolIs | ResultOf]:
    if not isinstance(rule.demand, Temporal):
        return []
    found = [atom for atom in atoms(rule.demand.formula) if isinstance(atom, ToolIs | ResultOf)]
    return [atom for atom in found if tool is None or compile_names(Calls(atom.names))(tool)]


def is_written(rule: Rule) -> bool:
    """Whether everything that the rule can look at in a response is in the rows."""
    if rule.when:
        return False
    match rule.demand:
        case Never() | Sometime() | Before() | Tally(measure=Calls() | Turns()):
            return True
        case Always(probe=StopReasonIn() | FitsSchema()):
            return True
        case Temporal(formula=formula):
            asks_user = any(isinstance(atom, UserSays) for atom in atoms(formula))
            return not asks_user and not any(isinstance(part, Seen) for part in walk(formula))
        case _:
            return False


def looks_at_text(rule: Rule) -> bool:
    """Whether the rule looks at what a response says, out of which secrets are taken."""
    match rule.demand:
        case Never(probe=Calls()) | Before() | Tally() | Always(probe=StopReasonIn()):
            return False
        case Temporal(formula=formula):
            return any(isinstance(atom, Says) for atom in atoms(formula))
        case _:
            return True
