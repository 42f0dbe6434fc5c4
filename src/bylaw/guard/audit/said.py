"""What a row says that predicates said of arguments which it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.truths import digest_of, key_of
from bylaw.model.predicate import ArgumentIs

Truth = bool | None


class OtherPredicates(Exception):
    """The row does not say it of the predicates that the rule has."""


def truths_of(
    rules: Iterable[tuple[CompiledPolicy, str, Sequence[ArgumentIs]]], data: Mapping[str, Any]
) -> dict[ArgumentIs, Truth]:
    """A rule of which the row says nothing had no part in the verdict."""
    said, asked = data["redacted"]["truths"], data.get("asked", {})
    found: dict[ArgumentIs, Truth] = {}
    for policy, id, leaves in rules:
        key = key_of(policy, id)
        if key in said:
            found.update(zip(leaves, _in_order(leaves, said[key], asked.get(key)), strict=True))
    return found


def _in_order(leaves: Sequence[ArgumentIs], truths: Sequence[Truth], asked: Sequence[str] | None) -> Sequence[Truth]:
    """As the rule has its predicates. Rows of earlier versions do not say what was `asked`."""
    if asked is None:
        if len(truths) != len(leaves):
            raise OtherPredicates
        return truths
    known = dict(zip(asked, truths, strict=True))
    digests = [digest_of(leaf) for leaf in leaves]
    if not known.keys() >= set(digests):
        raise OtherPredicates
    return [known[digest] for digest in digests]
