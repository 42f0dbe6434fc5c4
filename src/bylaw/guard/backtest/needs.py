"""What a recording must hold for a rule to be judged at a call of a tool."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from bylaw.engine.matching import Matches, compile_names
from bylaw.engine.temporal.shape import atoms, windows
from bylaw.model.demand import Attempt, Calls, Temporal
from bylaw.model.predicate import AllOf, AnyOf, ArgumentIs, NotOf, Predicate, counts
from bylaw.model.rule import Rule
from bylaw.model.temporal import AgentIs, ResultOf, Says, StopsFor, ToolIs, UserSays


class Needs(Struct, frozen=True, kw_only=True):
    """Of one rule, at calls of one tool."""

    arguments: bool = False
    results: Matches | None = None
    """results of these tools; None: of none"""
    errors: Matches | None = None
    """whether calls of these tools failed"""
    responses: bool = False
    messages: bool = False
    times: bool = False
    agents: bool = False

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = Needs()


def needs_of(rule: Rule, tool: str) -> Needs:
    demand = rule.demand
    if isinstance(demand, Attempt):
        timed = any(count.over == "window" for count in counts(demand.when))
        return Needs(arguments=_asks_arguments(demand.when), times=timed)
    if isinstance(demand, Temporal):
        return _temporal(demand, tool, conditional=bool(rule.when))
    return Needs(responses=bool(rule.when))


def _temporal(demand: Temporal, tool: str, *, conditional: bool) -> Needs:
    found = atoms(demand.formula)
    results = [atom for atom in found if isinstance(atom, ResultOf)]
    failing = [atom for atom in results if any(test.root == "error" for test in atom.tests)]
    return Needs(
        arguments=any(_tests_arguments(atom, tool) for atom in found if isinstance(atom, ToolIs)),
        results=_named(results),
        errors=_named(failing),
        responses=conditional or any(isinstance(atom, Says | StopsFor) for atom in found),
        messages=any(isinstance(atom, UserSays) for atom in found),
        times=any(window.unit == "seconds" for window in windows(demand.formula)),
        agents=any(isinstance(atom, AgentIs) for atom in found),
    )


def _named(results: list[ResultOf]) -> Matches | None:
    return compile_names(Calls(tuple(name for one in results for name in one.names))) if results else None


def _tests_arguments(atom: ToolIs, tool: str) -> bool:
    return bool(atom.tests) and compile_names(Calls(atom.names))(tool)


def _asks_arguments(predicate: Predicate) -> bool:
    return any(isinstance(part, ArgumentIs) for part in _parts(predicate))


def _parts(predicate: Predicate) -> Iterator[Predicate]:
    yield predicate
    match predicate:
        case AllOf(of=of) | AnyOf(of=of):
            for part in of:
                yield from _parts(part)
        case NotOf(of=part):
            yield from _parts(part)
