"""Rules that look at what is not in the log: secrets are taken out, and what a model was asked stays with the host.

- What predicates on arguments said of a secret stands in the row, and is used in its place.
- Of what other rules made of it, the guard's word is taken, where it went by the same rules; its silence only where it
  asked all of the rule.
- Everything else could not be judged, and is counted as that: it is neither fine nor a breach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.predicates import Told
from bylaw.guard.audit.following import is_written, looking_at_arguments, looking_at_result, looks_at_text
from bylaw.guard.decide.policy import MESSAGES, CompiledPolicy, inline_form, policy_hash
from bylaw.guard.decide.tree import Chain, Policies, without_repeats
from bylaw.guard.decide.truths import digest_of, looking_at, meets
from bylaw.guard.guard import joined_hash
from bylaw.guard.incidents.recorded import ALL_GONE, Gone
from bylaw.model.demand import Attempt
from bylaw.model.events import Event, Request, Response, ToolCall, ToolResult
from bylaw.model.guarding import ExecutionMode, GuardPolicy, GuardRule
from bylaw.model.predicate import ArgumentIs


class Rules:
    """The policies as the follow-up has them, every window counter holding, and the guards whose word counts."""

    def __init__(self, policies: Sequence[GuardPolicy]) -> None:
        once = without_repeats(policies)
        inline = [replace(policy, rules=tuple(replace(rule, inline=True) for rule in policy.rules)) for policy in once]
        self.policies = Policies([CompiledPolicy(policy) for policy in inline])
        self._in_part = frozenset(
            key(compiled, guarded.rule.id)
            for policy, compiled in zip(once, self.policies.all, strict=True)
            for guarded in policy.rules
            if isinstance(guarded.rule.demand, Attempt) and inline_form(guarded) != guarded.rule
        )
        self.hash = joined_hash([policy.hash for policy in self.policies.all])
        self._guards = frozenset(_hash(policies, mode) for mode in (None, *get_args(ExecutionMode)))
        self._by_response = {policy.hash: _Response(policy) for policy in self.policies.all}

    def are_those_of(self, guard: object) -> bool:
        """Whether a guard of this hash goes by the same rules."""
        return isinstance(guard, str) and guard in self._guards

    def is_asked_in_part(self, policy: CompiledPolicy, guarded: GuardRule) -> bool:
        """Whether no guard asks all of it before a call: that it said nothing then does not mean that the rule held."""
        return key(policy, guarded.rule.id) in self._in_part

    def lost_by(self, event: Event, *, redacted: bool, asked: bool) -> set[str]:
        """Rules whose memory is not known after it. `asked`: whether it came with what the model was asked."""
        found: set[str] = set()
        ids: Iterable[str]
        for policy in self.policies.all:
            if isinstance(event, ToolResult):
                ids = looking_at_result(policy, event.name) if redacted else ()
            elif isinstance(event, Response | Request):
                ids = self._by_response[policy.hash].unseen(event, redacted=redacted, asked=asked)
            else:
                ids = _routed(policy, event) if redacted else ()
            found.update(key(policy, id) for id in ids)
        return found


def _hash(policies: Sequence[GuardPolicy], mode: ExecutionMode | None) -> str:
    """Of a guard with these rules that was told its mode, where they name none."""
    moded = [policy if policy.mode or mode is None else replace(policy, mode=mode) for policy in policies]
    return joined_hash([policy_hash(policy) for policy in without_repeats(moded)])


def key(policy: CompiledPolicy, rule: str) -> str:
    return f"{policy.hash}/{rule}"


def _routed(policy: CompiledPolicy, event: Event) -> list[str]:
    return [policy.calls.rules[index].id for index, _, _ in policy.calls.route(event).session]


def concerned_by(
    policies: Sequence[CompiledPolicy], event: Event, lost: set[str]
) -> Iterator[tuple[CompiledPolicy, str]]:
    """Lost rules that the event would have been told to."""
    for policy in policies:
        for id in _routed(policy, event):
            if key(policy, id) in lost:
                yield policy, id


# -- calls ----------------------------------------------------------------------------------------------------------


class Known(Struct, frozen=True):
    """A call as far as it is known."""

    call: ToolCall
    doubtful: frozenset[str]
    """rules about attempts that look at what nobody knows"""
    lost: frozenset[str]
    """rules about calls whose memory is not known once it was made"""


def known(call: ToolCall, chain: Chain, gone: Gone) -> Known:
    looking = list(looking_at(chain, call.name, gone.arguments))
    answers = _answers(gone)
    truths: dict[ArgumentIs, bool | None] = {}
    unknown: set[ArgumentIs] = set()
    for leaf in {leaf for _, _, leaves in looking for leaf in leaves}:
        digest = digest_of(leaf)
        if digest in answers:
            truths[leaf] = answers[digest]
        elif any(meets(leaf.path, place) for place in gone.arguments) and not _is_of_the_form(leaf, gone):
            truths[leaf] = None
            unknown.add(leaf)
    doubtful = {key(policy, id) for policy, id, leaves in looking if not unknown.isdisjoint(leaves)}
    lost = {key(p, id) for p in chain.reserving for id in looking_at_arguments(p, call.name, gone.arguments)}
    if isinstance(call.arguments, dict):
        call = replace(call, arguments=Told(call.arguments, truths))
    return Known(call, frozenset(doubtful), frozenset(lost))


def _answers(gone: Gone) -> dict[str, bool | None]:
    """Digest of a predicate → what it said."""
    said = ((digests, gone.truths.get(rule, [])) for rule, digests in gone.asked.items())
    return {digest: truth for digests, truths in said for digest, truth in zip(digests, truths, strict=False)}


def _is_of_the_form(leaf: ArgumentIs, gone: Gone) -> bool:
    """Whether it asks only if something is there: that shows, since a text in its place is all that was changed."""
    return leaf.op in ("present", "missing") and gone is not ALL_GONE


# -- responses ------------------------------------------------------------------------------------------------------


class _Response:
    """What the rules of a policy look at in a response. Its text, stop reason, model and calls are written down."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy = policy
        self._unwritten = frozenset(rule.id for rule in policy.calls.rules if not is_written(rule))
        self._texts = frozenset(rule.id for rule in policy.calls.rules if looks_at_text(rule))
        self._messages = frozenset(id for id, needs in policy.needs.items() if MESSAGES in needs)

    def unseen(self, event: Response | Request, *, redacted: bool, asked: bool) -> set[str]:
        routed = set(_routed(self._policy, event)) if isinstance(event, Response) else set()
        found = routed & (self._unwritten - self._messages)
        if redacted:
            found |= routed & self._texts
        return found | self._messages if asked else found
