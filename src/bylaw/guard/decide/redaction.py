"""Values that rows of the record leave out, and the rules that look at them.

Secrets are removed from a call before it is recorded. The row then names the paths that were redacted and, for each
rule that looks at one of them, the truth of its predicates on arguments, in order: true, false, or null if unknown.
Rules that only the follow-up acts on are included. A digest of each predicate shows whether the rule has changed since.
The rules about calls have no such predicates, so a replay cannot follow those that look at a redacted value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from bylaw.engine.matching import compile_names, compile_predicate
from bylaw.engine.temporal.shape import atoms
from bylaw.engine.values import UNREADABLE
from bylaw.guard.decide.chain import Chain
from bylaw.guard.decide.policy import MESSAGES, CompiledPolicy
from bylaw.model.canonical import short_digest
from bylaw.model.condition import ArgumentIs
from bylaw.model.demand import (
    Always,
    AtMost,
    Before,
    Calls,
    FitsSchema,
    Never,
    Sometime,
    StopReasonIn,
    Tally,
    Temporal,
    Turns,
    Values,
    looks_at_arguments,
)
from bylaw.model.events import Event, Response, ToolCall
from bylaw.model.rule import Rule
from bylaw.model.temporal import ResultOf, Says, Seen, ToolIs, walk

Place: TypeAlias = list[str | int]
"""a path into a value: keys and indices"""


def redacted_paths(value: Any, written: Any) -> list[Place]:
    """The paths that were redacted: where `written` differs from `value`."""
    return list(_redacted_paths(value, written, []))


def _redacted_paths(value: Any, written: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, dict) and isinstance(written, dict) and value.keys() == written.keys():
        for key, inner in value.items():
            yield from _redacted_paths(inner, written[key], [*place, key])
    elif isinstance(value, list | tuple) and isinstance(written, list) and len(value) == len(written):
        for i, inner in enumerate(value):
            yield from _redacted_paths(inner, written[i], [*place, i])
    elif value != written:
        yield place


# -- predicates of rules about attempts -------------------------------------------------------------------------------


def redacted_predicates(chain: Chain, call: ToolCall, places: Sequence[Place]) -> dict[str, dict[str, Any]]:
    """For each rule that looks at one of the places: the `truths` of its predicates, and their digests in `asked`."""
    found: dict[str, dict[str, Any]] = {"truths": {}, "asked": {}}
    for policy, id, leaves in rules_on_places(chain, call.name, places):
        key = recorded_key(policy, id)
        found["truths"][key] = [compile_predicate(leaf, ())(call, ()) for leaf in leaves]
        found["asked"][key] = [predicate_digest(leaf) for leaf in leaves]
    return found


@lru_cache(maxsize=4096)
def predicate_digest(leaf: ArgumentIs) -> str:
    """Equal for equal predicates, in whichever rule."""
    return short_digest([leaf.path, leaf.op, leaf.value])


def rules_on_places(
    chain: Chain, tool: str, places: Sequence[Place]
) -> Iterator[tuple[CompiledPolicy, str, Sequence[ArgumentIs]]]:
    """Rules about attempts that look at one of the places, with all their predicates on arguments."""
    for policy in chain.judging:
        for id, leaves in policy.argument_predicates[tool]:
            if any(overlaps(leaf.path, place) for leaf in leaves for place in places):
                yield policy, id, leaves


def recorded_key(policy: CompiledPolicy, rule: str) -> str:
    return rule if policy.agent is None else f"{policy.agent}/{rule}"


def overlaps(path: Sequence[str | None], place: Place) -> bool:
    """Whether the path leads to the place, into it, or around it. In doubt yes: an index may count from the end."""
    return all(
        step is None or step == str(there) or (isinstance(there, int) and step.startswith("-"))
        for step, there in zip(path, place, strict=False)
    )


# -- rules about calls ------------------------------------------------------------------------------------------------


def rules_on_arguments(policy: CompiledPolicy, tool: str, places: Sequence[Place]) -> Iterator[str]:
    """Rules about calls that look at one of these places in a call of the tool."""
    for rule in policy.calls.rules:
        if any(overlaps(path, place) for path in _paths(rule, tool) for place in places):
            yield rule.id


def _paths(rule: Rule, tool: str) -> Iterator[Sequence[str | None]]:
    """Where the rule looks in the arguments of a call of the tool."""
    for atom in _atoms_about(rule, tool):
        yield from (test.path for test in atom.tests if test.root == "args")
    yield from (path for calls, path in looks_at_arguments(rule.demand) if compile_names(calls)(tool))


def unread_places(policies: Sequence[CompiledPolicy], tool: str, places: Sequence[Place]) -> list[Place]:
    """What rules about calls cannot read where these places were redacted: a rule that compares a whole value cannot
    read any of it."""
    paths = [path for policy in policies for rule in policy.calls.rules for path in _paths(rule, tool)]
    return [place[: min([len(place), *(len(path) for path in paths if overlaps(path, place))])] for place in places]


class StoredArguments(dict[str, Any]):
    """Arguments that were stored without secrets. A comparison with a redacted value is neither true nor false."""

    __slots__ = ("places", "written")

    def __init__(self, written: dict[str, Any], places: list[Place], unread: Sequence[Place]) -> None:
        super().__init__(written)
        self.written, self.places = written, places
        for place in unread:
            self._hide(place)

    def _hide(self, place: Place) -> None:
        """Copies the containers on the path, so that `written` does not change."""
        inside: Any = self
        for step in place[:-1]:
            if inside[step] is UNREADABLE:
                return
            inside[step] = inside[step].copy()
            inside = inside[step]
        inside[place[-1]] = UNREADABLE


def rules_on_result(policy: CompiledPolicy, tool: str | None) -> Iterator[str]:
    for rule in policy.calls.rules:
        if any(test.root != "args" for atom in _atoms_about(rule, tool) for test in atom.tests):
            yield rule.id


def rules_on_event(policy: CompiledPolicy, event: Event, *, redacted: bool) -> set[str]:
    """Rules whose state is unknown after an observed event, since they look at a part of it that is not recorded. Of a
    response, text, stop reason, model and calls are recorded, without secrets; the messages of its request are not."""
    routed = {policy.calls.rules[index].id for index, _, _ in policy.calls.route(event).session}
    if not isinstance(event, Response):
        return routed if redacted else set()
    unrecorded, texts, messages = _rules_by_input(policy)
    found = routed & (unrecorded | texts if redacted else unrecorded)
    return found if event.request is None else found | messages


@lru_cache(maxsize=1024)
def _rules_by_input(policy: CompiledPolicy) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Rules that look at parts of a response that are not recorded, at its text, and at messages."""
    rules = policy.calls.rules
    unrecorded = frozenset(rule.id for rule in rules if not is_recorded(rule))
    texts = frozenset(rule.id for rule in rules if looks_at_text(rule))
    return unrecorded, texts, frozenset(id for id, needs in policy.needs.items() if MESSAGES in needs)


def _atoms_about(rule: Rule, tool: str | None) -> list[ToolIs | ResultOf]:
    if not isinstance(rule.demand, Temporal):
        return []
    found = [atom for atom in atoms(rule.demand.formula) if isinstance(atom, ToolIs | ResultOf)]
    return [atom for atom in found if tool is None or compile_names(Calls(atom.names))(tool)]


def is_recorded(rule: Rule) -> bool:
    """Whether rows hold everything that the rule can look at in a response, apart from its request."""
    if rule.when:
        return False
    match rule.demand:
        case Never() | Sometime() | Before() | Tally(measure=Calls() | Turns() | Values()):
            return True
        case Always(probe=StopReasonIn() | FitsSchema()):
            return True
        case Temporal(formula=formula):
            return not any(isinstance(part, Seen) for part in walk(formula))
        case _:
            return False


def looks_at_text(rule: Rule) -> bool:
    """Whether the rule looks at the text of a response, from which secrets are removed."""
    match rule.demand:
        case Never(probe=Calls()) | Before() | Tally() | Always(probe=StopReasonIn() | AtMost()):
            return False
        case Temporal(formula=formula):
            return any(isinstance(atom, Says) for atom in atoms(formula))
        case _:
            return True
