"""Which rules cannot be decided where a response holds something that was recorded and could not be read.

Such a response names the tools of which it may hold calls, or `*`: then it may hold calls of any tool, and text. A rule
that these decide is violated or inconclusive, never ok. Ordinary responses name nothing and cost nothing.
"""

from __future__ import annotations

from bylaw.engine.compile import Program
from bylaw.engine.matching import compile_names
from bylaw.model import demand as demands
from bylaw.model.rule import Rule

UNREAD = "part of a response could not be read for certain, and it may decide the rule"


def rules_blind_to(program: Program, unread: tuple[str, ...]) -> set[int]:
    """Rules that calls of these tools may decide, or, for `*`, calls of any tool or text; by index."""
    rules = enumerate(program.rules)
    if "*" in unread:
        return {index for index, rule in rules if rule.when or not _is_measured(rule.demand)}
    return {index for index, rule in rules if _sees_turns(rule) or _hears_of(program, index, unread)}


def _is_measured(demand: demands.Demand) -> bool:
    """Whether what it judges was told about the response, and is neither a call nor text."""
    match demand:
        case demands.Always(probe=demands.StopReasonIn() | demands.AtMost()):
            return True
        case demands.Tally(measure=demands.Turns() | demands.Tokens() | demands.Cost() | demands.Latency()):
            return True
        case _:
            return False


def _sees_turns(rule: Rule) -> bool:
    """Whether it sees calls as parts of a turn, so that their names do not say which of them it means."""
    demand = rule.demand
    if isinstance(demand, demands.Temporal):
        return demand.over == "turns" or bool(rule.when)
    return isinstance(demand, demands.Constant | demands.Next) or bool(rule.when)


def _hears_of(program: Program, index: int, tools: tuple[str, ...]) -> bool:
    watches = program.monitors[index].watches
    matchers = [compile_names(calls) for calls in (*watches.calls, *watches.results)]
    return any(matches(tool) for matches in matchers for tool in tools)
