"""What predicates said of arguments that are not written down, so that a verdict can be recomputed without them.

Where secrets are taken out of a call, the row names the arguments that had one, and for each rule that looked at one of
them the truth of its predicates on arguments, in their order: true, false, or null where they could not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.engine.predicates import compile_predicate
from bylaw.jobs.guard.hiding import Place
from bylaw.jobs.guard.policy import CompiledPolicy
from bylaw.jobs.guard.tree import Chain
from bylaw.model.events import ToolCall
from bylaw.model.predicate import AllOf, AnyOf, ArgumentIs, NotOf, Predicate


def truths(chain: Chain, call: ToolCall, places: Sequence[Place]) -> dict[str, list[bool | None]]:
    """By rule, of those that looked at one of the places."""
    found: dict[str, list[bool | None]] = {}
    for policy, id, leaves in looking_at(chain, call.name, places):
        found[key_of(policy, id)] = [compile_predicate(leaf, ())(call, ()) for leaf in leaves]
    return found


def looking_at(
    chain: Chain, tool: str, places: Sequence[Place]
) -> Iterator[tuple[CompiledPolicy, str, list[ArgumentIs]]]:
    """Rules about attempts that look at one of the places, with all that they ask of arguments."""
    for policy in chain.judging:
        for index, _, _ in policy.attempts.calls[tool].session:
            rule = policy.attempts.rules[index]
            leaves = list(_leaves(rule.demand.when))  # type: ignore[union-attr]
            if any(meets(leaf.path, place) for leaf in leaves for place in places):
                yield policy, rule.id, leaves


def key_of(policy: CompiledPolicy, rule: str) -> str:
    return rule if policy.agent is None else f"{policy.agent}/{rule}"


def meets(path: Sequence[str | None], place: Place) -> bool:
    """Whether the path leads to the place, into it, or to something around it. Rather too often than not: an index
    may count from the end."""
    return all(_may_be(step, there) for step, there in zip(path, place, strict=False))


def _may_be(step: str | None, there: str | int) -> bool:
    if step is None or step == str(there):
        return True
    return isinstance(there, int) and step.startswith("-")


def _leaves(predicate: Predicate) -> Iterator[ArgumentIs]:
    match predicate:
        case ArgumentIs():
            yield predicate
        case AllOf(of=of) | AnyOf(of=of):
            for part in of:
                yield from _leaves(part)
        case NotOf(of=part):
            yield from _leaves(part)
