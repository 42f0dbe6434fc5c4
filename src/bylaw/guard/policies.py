"""Rule files as guard policies: loading, choosing a version and a mode, removing repeats, hashing, loading again."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.guard.model import Options
from bylaw.model.canonical import canonical_json, short_digest
from bylaw.model.condition import Clause, Condition
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.identity import identity
from bylaw.model.rule import MODES, Action, ExecutionMode, GuardPolicy, GuardRule, GuardSet, parse_mode
from bylaw.rules import load_guard
from bylaw.rules.conditions import plain_conditions
from bylaw.rules.guard.section import refuse_approvals
from bylaw.rules.messages import nearest_choice
from bylaw.rules.versions import VersionChoice, qualified_id, select_version, shared_ids

__all__ = ["VersionChoice", "select_version"]

GuardRules: TypeAlias = "str | PathLike[str] | GuardSet | Mapping[str, Any] | Sequence[Any]"
"""the path of a rule file, several paths, the rules themselves, or the result of `load_guard`"""
LOOK_EVERY = 0.5
"""seconds between two looks at watched files"""
_log = logging.getLogger("bylaw")


def load_policies(rules: GuardRules, *, inputs: Mapping[str, str] | None = None) -> Sequence[GuardPolicy]:
    if isinstance(rules, GuardSet):
        return rules.policies
    if isinstance(rules, str | PathLike | Mapping):
        return load_guard(rules, inputs=inputs).policies
    items = list(rules)
    if all(isinstance(item, Mapping) for item in items):
        return load_guard(items, inputs=inputs).policies
    return [policy for item in items for policy in load_guard(item, inputs=inputs).policies]


def with_mode(policies: Sequence[GuardPolicy], mode: str | None) -> list[GuardPolicy]:
    """The policies, with `mode` for those that name none. Raises InputError for `pause` in mode `request` and
    for a `request` beside a policy that names another mode, and ValueError for a mode that does not exist."""
    wanted = None if mode is None else known_mode(mode)
    moded = fill_mode([_checked_mode(policy) for policy in policies], wanted)
    # only `request` restricts: whoever asks for it must not get a guard that pauses
    others = [policy for policy in moded if policy.mode != "request"] if wanted == "request" else []
    if others:
        raise InputError([_unused_mode("request", others)])
    problems = [
        _cannot_pause(rule)
        for policy in moded
        if policy.mode == "request"
        for rule in policy.rules
        if rule.then is Action.PAUSE
    ]
    if problems:
        raise InputError(problems)
    return moded


def decide_nothing(policies: Iterable[GuardPolicy]) -> bool:
    """Whether no rule and no list could refuse any call."""
    return all(policy.tools is policy.sub_agents is None and not policy.rules for policy in policies)


def refuse_pausing_options(policies: Sequence[GuardPolicy], options: Options) -> None:
    """Raises ValueError for an option that pauses the calls of an agent on whose behalf nobody can be asked."""
    names = ("on_error", "on_store_unavailable", "breaker_then")
    pausing = next((name for name in names if getattr(options, name) == Action.PAUSE), None)
    asked = next((policy for policy in policies if policy.mode == "request"), None)
    if pausing is not None and asked is not None:
        whom = "" if asked.agent is None else f", the mode of the agent `{asked.agent}`"
        raise ValueError(f"{pausing}='pause': nobody can be asked in `request` mode{whom}; use 'block'")


def known_mode(mode: str) -> ExecutionMode:
    """The mode in any usual spelling. Raises ValueError for any other."""
    known = parse_mode(mode)
    if known is None:
        raise ValueError(f"mode={mode!r}: expected `request`, `hitl` or `sub_agent`")
    return known


def _checked_mode(policy: GuardPolicy) -> GuardPolicy:
    """A policy that was built in code may hold anything."""
    if policy.mode is None or policy.mode in MODES:
        return policy
    return replace(policy, mode=known_mode(policy.mode))


def fill_mode(policies: Sequence[GuardPolicy], mode: ExecutionMode | None) -> list[GuardPolicy]:
    return [
        policy if policy.mode or mode is None else refuse_approvals(replace(policy, mode=mode)) for policy in policies
    ]


def _unused_mode(mode: ExecutionMode, policies: Sequence[GuardPolicy]) -> Diagnostic:
    of = {policy.agent: f" of the agent `{policy.agent}`" if policy.agent else "" for policy in policies}
    named = ", ".join(f"`{policy.mode}`{of.pop(policy.agent)}" for policy in policies if policy.agent in of)
    return Diagnostic(
        code="unknown-mode",
        message=f"the mode `{mode}` would have no effect on guards that name their own: {named}",
        file="<rules>",
        help="change the mode in the rules, or leave `mode` out",
    )


def _cannot_pause(rule: GuardRule) -> Diagnostic:
    span = rule.rule.span
    return Diagnostic(
        code="pause-in-request-mode",
        message=f"`{rule.rule.id}` pauses, and nobody can be asked in `request` mode",
        file=span.file if span is not None else "<rules>",
        span=span,
        help="use `block`, or run the agent in mode `hitl` or `sub_agent`",
    )


def drop_repeated(policies: Sequence[GuardPolicy]) -> list[GuardPolicy]:
    """Each rule once for each agent. A rule for every agent would otherwise be counted and recorded twice."""
    shared = [policy for policy in policies if policy.agent is None and not policy.switched_off]
    everywhere = {rule.rule.id: rule for policy in shared for rule in policy.rules}
    by_hash: dict[str, GuardPolicy] = {}
    for policy in policies:
        if policy.agent is not None:
            own = tuple(rule for rule in policy.rules if everywhere.get(rule.rule.id) != rule)
            policy = policy if len(own) == len(policy.rules) else replace(policy, rules=own)
        by_hash.setdefault(policy_hash(policy), policy)
    once = list(by_hash.values())
    # ids that two agents use become `agent/id`: incidents, counts and reports are stored by id
    twice = shared_ids([(policy.agent, rule.rule.id) for policy in once for rule in policy.rules])
    return [_qualify_ids(policy, twice) for policy in once] if twice else once


def _qualify_ids(policy: GuardPolicy, shared: Collection[str]) -> GuardPolicy:
    if policy.agent is None or not any(rule.rule.id in shared for rule in policy.rules):
        return policy
    rules = [
        replace(rule, rule=replace(rule.rule, id=qualified_id(policy.agent, rule.rule.id)))
        if rule.rule.id in shared
        else rule
        for rule in policy.rules
    ]
    return replace(policy, rules=tuple(rules))


def policy_hash(policy: GuardPolicy) -> str:
    """Equal for equal rules, whichever file they come from."""
    rules = [_content(rule, rule.reason) for rule in policy.rules]
    tools = None if policy.tools is None else list(policy.tools)
    content: list[Any] = [policy.agent, policy.mode, tools, policy.switched_off, rules]
    if policy.sub_agents is not None:
        content.append(list(policy.sub_agents))
    return "sha256:" + hashlib.sha256(canonical_json(content)).hexdigest()


def _content(r: GuardRule, reason: str | None) -> list[Any]:
    return [
        r.rule.id,
        r.rule.kind,
        r.rule.params,
        r.then.value,
        reason,
        r.inline,
        r.shadow,
        [clause_text(c) for c in r.rule.when],
        *([[r.approvals, list(r.approvers)]] if r.approvals != 1 or r.approvers else []),
    ]


def rule_hashes(policy: GuardPolicy) -> dict[str, str]:
    """Rule → its own hash, whatever other rules there are and whatever its reason says."""
    return {one.rule.id: short_digest([policy.agent, _content(one, None)]) for one in policy.rules}


def clause_text(clause: Clause) -> str:
    """Without the place in the file, which is no part of the rule."""
    return str(clause) if isinstance(clause, Condition) else canonical_json(plain_conditions((clause,))).decode()


def guard_hash(policies: Sequence[GuardPolicy]) -> str:
    """The hash of a guard with these policies, which have no repeats."""
    return joined_hash([policy_hash(policy) for policy in policies])


def joined_hash(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else "sha256:" + hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def doubt_agent(agent: str, policies: Iterable[GuardPolicy]) -> str | None:
    """What to say about the name of an agent that a kill switch is for, if rules name agents, and not this one."""
    known = {name for policy in policies for name in (policy.agent, *(policy.sub_agents or ())) if name is not None}
    if not known or agent in known or agent == "*":
        return None
    same = next((name for name in sorted(known) if identity(name) == identity(agent)), None) or nearest_choice(
        agent, known
    )
    meant = f"; did you mean `{same}`?" if same else ""
    return f"no rules name an agent `{agent}`, so the switch may stop nobody{meant}"


# -- rules that are loaded again --------------------------------------------------------------------------------------


class RuleSource(Struct, frozen=True):
    """The arguments of `Guard(…)` that say which rules it has."""

    rules: GuardRules
    mode: str | None = None
    version: VersionChoice = None
    inputs: Mapping[str, str] | None = None

    def load(self) -> Sequence[GuardPolicy]:
        """Raises InputError for rules that cannot be used."""
        return with_mode(select_version(load_policies(self.rules, inputs=self.inputs), self.version), self.mode)

    def files(self) -> list[str]:
        """The files that the rules are read from. Raises ValueError if there are none."""
        rules = self.rules
        if isinstance(rules, GuardSet):  # read before, so it cannot be read again
            named = []
        else:
            several = [rules] if isinstance(rules, str | PathLike | Mapping) else rules
            named = [fspath(one) for one in several if isinstance(one, str | PathLike)]
        if not named:
            raise ValueError("watch=True: the rules are no file that could be watched; pass its path")
        return named


class FileWatch:
    """Calls `reload` after a change of the files. If the new rules cannot be used, the old ones stay, and the log says
    why.

    The watch needs no thread: before a decision, at most every half second, it looks at the files. So it works in a
    process that was forked, and no decision uses rules that are much older than the file. A file counts as changed when
    it looks the same twice: one that is being written could be cut off after any rule.
    """

    def __init__(self, files: Sequence[str], reload: Callable[[], object]) -> None:
        self._files, self._reload = files, reload
        self._loaded = self._seen = self._stamps()
        self._problem = ""
        """what kept the rules from being loaded at the last look, such as a store that cannot be used"""
        self._next = time.monotonic() + LOOK_EVERY
        self._lock, self._process = threading.Lock(), os.getpid()

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        if self._process != os.getpid():  # another thread may have held the lock when this process was forked
            self._lock, self._process = threading.Lock(), os.getpid()
        if not self._lock.acquire(blocking=False):
            return
        stamps = self._loaded
        try:
            self._next = time.monotonic() + LOOK_EVERY
            stamps = self._stamps()
            is_settled, self._seen = stamps == self._seen, stamps
            if not is_settled or stamps == self._loaded:
                return
            self._reload()
            self._loaded, self._problem = stamps, ""
        except Exception as problem:  # whoever asks for a decision gets one
            if isinstance(problem, InputError | ValueError):  # the next look would find the same
                self._loaded = stamps
            if str(problem) != self._problem:
                _log.error("the rules have changed and cannot be used, so the old ones stay in force: %s", problem)
            self._problem = "" if self._loaded == stamps else str(problem)
        finally:
            self._lock.release()

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [_stamp(file) for file in self._files]


def _stamp(file: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
