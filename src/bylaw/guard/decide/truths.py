"""What predicates said of arguments that are not written down, so that a verdict can be recomputed without them.

Where secrets are taken out of a call, the row names the arguments that had one, and for each rule that looked at one of
them the truth of its predicates on arguments, in their order: true, false, or null where they could not tell. Rules
that only the follow-up acts on are among them. The digest of each predicate says what was asked: a rule that has
changed since was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from bylaw.engine.predicates import compile_predicate
from bylaw.guard.decide.hiding import Place
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.tree import Chain
from bylaw.model.canonical import short_digest
from bylaw.model.events import ToolCall
from bylaw.model.predicate import ArgumentIs


def truths(chain: Chain, call: ToolCall, places: Sequence[Place]) -> dict[str, dict[str, Any]]:
    """By rule, of those that looked at one of the places: `truths`, and in `asked` the digests of its predicates."""
    found: dict[str, dict[str, Any]] = {"truths": {}, "asked": {}}
    for policy, id, leaves in looking_at(chain, call.name, places):
        key = key_of(policy, id)
        found["truths"][key] = [compile_predicate(leaf, ())(call, ()) for leaf in leaves]
        found["asked"][key] = [digest_of(leaf) for leaf in leaves]
    return found


@lru_cache(maxsize=4096)
def digest_of(leaf: ArgumentIs) -> str:
    """Equal for predicates that ask the same, in whatever rule."""
    return short_digest([leaf.path, leaf.op, leaf.value])


def looking_at(
    chain: Chain, tool: str, places: Sequence[Place]
) -> Iterator[tuple[CompiledPolicy, str, Sequence[ArgumentIs]]]:
    """Rules about attempts that look at one of the places, with all that they ask of arguments."""
    for policy in chain.judging:
        for id, leaves in policy.asking[tool]:
            if any(meets(leaf.path, place) for leaf in leaves for place in places):
                yield policy, id, leaves


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
