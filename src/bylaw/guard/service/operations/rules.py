"""Rules: the text in force, what each rule does, can do and has done, new versions, and what would have changed. And
proposals: rules that the record suggests, tried on it, accepted into shadow or a testing version, or dismissed."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.backtest.backtest import shadow_report
from bylaw.guard.backtest.report import BacktestReport, ShadowReport
from bylaw.guard.decide.policy import cannot_prevent
from bylaw.guard.guard import Guard
from bylaw.guard.proposals.propose import HOLD_OUT, MIN_SUPPORT, ProposalOptions, mine_proposals
from bylaw.guard.service.carried_settings import SHADOW, rules_named, turn_on
from bylaw.guard.service.errors import BadRequest, Conflict, NotFound, Unusable
from bylaw.guard.service.operations.record import Decisions
from bylaw.guard.service.rule_versions import (
    RuleVersions,
    RuleView,
    check_expected,
    check_size,
    paths_in,
    rule_views,
    views_of,
)
from bylaw.guard.service.store_trace import MOST_EVENTS, StoreTrace, compare_policies
from bylaw.guard.stores.ports import StoreConflict, each_followed, write_change
from bylaw.guard.stores.records import ProposalStatus, RuleVersion, RuleVersionStatus, StoredProposal
from bylaw.model.canonical import short_digest
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import GuardPolicy
from bylaw.rules import load_guard
from bylaw.text.redaction.redactor import redacted

MOST_INCIDENTS = 200
"""whose detections are counted for one answer"""


class RuleSetView(Struct, frozen=True, kw_only=True):
    """The rules of one version, with their text."""

    version: RuleVersion
    """its `files` are the text"""
    rules: list[RuleView]
    in_force: bool
    warnings: list[Diagnostic] = []
    unenforced: list[str] = []
    """one line for each rule that the guard cannot, or cannot always, enforce"""


class Checked(Struct, frozen=True, kw_only=True):
    """The diagnostics of rules that were checked and not activated."""

    ok: bool
    diagnostics: list[Diagnostic]
    policy: str | None = None
    """hash of the rules, if they can be used"""
    rules: list[RuleView] = []
    unenforced: list[str] = []
    same: bool = False
    """whether these rules are in force already"""


class VersionSummary(Struct, frozen=True, kw_only=True):
    id: str
    number: int
    status: str
    at: float
    by: str
    note: str
    origin: str
    policy: str
    before: str | None
    restores: str | None
    in_force: bool
    files: tuple[str, ...]


_SHOWN = ("id", "number", "status", "at", "by", "note", "origin", "policy", "before", "restores")


class Rules:
    def __init__(self, guard: Guard, versions: RuleVersions, clock: Callable[[], float]) -> None:
        self._guard, self._versions, self._clock = guard, versions, clock

    # -- rules in force ------------------------------------------------------------------------------------------------

    def active(self) -> RuleSetView:
        return self.version(self._versions.active().id)

    def version(self, version_id: str) -> RuleSetView:
        version = self._versions.get(version_id)
        loaded = self._versions.load(version)
        return RuleSetView(
            version=version,
            rules=views_of(loaded.policies),
            in_force=version.id == self._versions.active_id(),
            warnings=builtins.list(loaded.diagnostics),
            unenforced=_unenforced_rules(loaded.policies),
        )

    def list(self) -> Sequence[RuleView]:
        """The rules by which this worker decides now."""
        return rule_views(self._guard)

    def hits(
        self, *, since: float | None = None, until: float | None = None, buckets: int = 24
    ) -> dict[str, builtins.list[int]]:
        """Rule → how often it matched, in each bucket; by default over the last day. What only the follow-up has found,
        such as a broken window, counts too."""
        until = self._clock() if until is None else until
        since = until - 86_400.0 if since is None else since
        found = Decisions(self._guard.store, self._clock).series(since=since, until=until, buckets=buckets).rules
        for rule, place in self._noticed(since, until, buckets):
            found.setdefault(rule, [0] * buckets)[place] += 1
        return found

    def noticed(self, rule: str, *, since: float, until: float, buckets: int) -> builtins.list[int]:
        """How often the follow-up has found that a call or a session had broken this rule, in each bucket."""
        counts = [0] * buckets
        for name, place in self._noticed(since, until, buckets):
            counts[place] += name == rule
        return counts

    def _noticed(self, since: float, until: float, buckets: int) -> Iterator[tuple[str, int]]:
        """Rule and bucket, of incidents that were seen in this time: what the guard did not stop."""
        incidents = self._guard.incidents
        seen = [one for one in incidents.each() if one.last_seen >= since and one.count > one.stopped]
        for incident in sorted(seen, key=lambda one: -one.last_seen)[:MOST_INCIDENTS]:
            for one in incidents.detections(incident):
                if not one.stopped and since <= one.when <= until:
                    yield one.rule, min(buckets - 1, int((one.when - since) / (until - since) * buckets))

    def versions(self) -> Sequence[VersionSummary]:
        """The newest first."""
        active = self._versions.active_id()
        return [
            VersionSummary(
                **{name: getattr(one, name) for name in _SHOWN}, in_force=one.id == active, files=tuple(one.files)
            )
            for one in self._versions.list()
        ]

    def diff(self, before: str, after: str) -> str:
        """A unified diff of two versions' text."""
        old, new = self._versions.get(before).files, self._versions.get(after).files
        lines: builtins.list[str] = []
        for name in sorted({*old, *new}):
            lines += difflib.unified_diff(
                old.get(name, "").splitlines(),
                new.get(name, "").splitlines(),
                f"{before}/{name}",
                f"{after}/{name}",
                lineterm="",
            )
        return "\n".join(lines) + "\n" if lines else ""

    # -- changes --------------------------------------------------------------------------------------------------

    def validate(self, files: Mapping[str, str]) -> Checked:
        """Would `activate` accept these rules, and what would they mean? Regular expressions, modes and pauses are
        checked too."""
        active = self._versions.active()
        check_size(files, active.files)
        try:
            loaded = self._versions.check(files, **_carried_settings(active))
        except Unusable as bad:
            return Checked(ok=False, diagnostics=bad.details["diagnostics"])
        return Checked(
            ok=True,
            diagnostics=builtins.list(loaded.diagnostics),
            policy=loaded.hash,
            rules=views_of(loaded.policies),
            unenforced=_unenforced_rules(loaded.policies),
            same=loaded.hash == active.policy,
        )

    def activate(
        self, files: Mapping[str, str], *, by: str, note: str = "", expected: str | None = None, testing: bool = False
    ) -> RuleVersion:
        """A new version, in force in every worker within half a second. `expected`: the version that the author has
        seen. `testing`: store it, and bring it into force later with `release`. Raises Unusable, Conflict."""
        active = self._versions.active()
        check_size(files, active.files)
        status: RuleVersionStatus = "testing" if testing else "released"
        policies = self._versions.check(files, **_carried_settings(active)).all_versions
        on = tuple(rule for rule in active.on if any(not one.shadow for one in rules_named(rule, policies)))
        more = {"on": on, **_carried_settings(active)}
        return self._versions.add(files, by=by, note=note, expected=expected, status=status, **more)

    def release(self, version_id: str, *, by: str, note: str = "", expected: str | None = None) -> RuleVersion:
        """Bring an earlier or a testing version into force, as a new version."""
        version = self._versions.get(version_id)
        if version.id == self._versions.active_id():
            raise Conflict(f"`{version_id}` is in force already")
        return self._versions.release(version, by=by, note=note or f"text of {version_id}", expected=expected)

    def rollback(self, *, by: str, note: str = "", to: str | None = None, expected: str | None = None) -> RuleVersion:
        """Go back to a version that was in force: by default to the one before the one in force, or after a rollback to
        the one before the version that it brought back. `expected`: the version that the caller has seen in force.
        Raises Conflict."""
        active = self._versions.active()
        check_expected(expected, active.id)
        target = self._versions.earlier(active) if to is None else to
        if target is None:
            raise Conflict("there is no earlier version")
        if self._versions.get(target).status == "testing":
            raise Conflict(f"`{target}` was never in force, so this is no rollback; release it")
        return self.release(target, by=by, note=note or f"rolled back from {active.id} to {target}", expected=active.id)

    def shadow(
        self,
        rules: Sequence[Mapping[str, Any]],
        *,
        by: str,
        agent: str | None = None,
        note: str = "",
        testing: bool = False,
        tool: str | None = None,
    ) -> RuleVersion:
        """The version in force, with these rules in shadow: they are judged and recorded, and stop nothing. `agent`:
        whose rules they are; None means of every agent that the rules know, and that may call the `tool`. Raises
        Unusable, Conflict."""
        active = self._versions.active()
        name = f"{SHADOW}{active.number + 1}.json"
        shadowed = [{**rule, "mode": "shadow"} for rule in rules]
        policies = self._versions.load(active).policies
        agents = [agent] if agent is not None else _agents(policies, tool)
        guards = [{**({} if one is None else {"agent": one}), "rules": shadowed} for one in agents]
        text = msgspec.json.format(msgspec.json.encode({"guard": guards})).decode()
        if refused := paths_in(name, text):  # the rules in force may come from files, and these do not
            raise Unusable("the rules cannot be used", diagnostics=refused)
        before = views_of(policies)
        known = {one.id.rpartition("/")[2] for one in before}
        if taken := [f"`{rule['id']}`" for rule in rules if rule.get("id") in known]:
            raise Conflict(f"there are rules with these ids already: {', '.join(taken)}")
        files = {**active.files, name: text}
        loaded = self._versions.check(files, **active.settings)
        enforced = [one.id for one in views_of(loaded.policies) if not one.shadow]
        before_ids = {one.id for one in before}
        if added := [id for id in enforced if id not in before_ids]:
            raise Conflict(f"these rules would not be in shadow: {', '.join(added)}")
        return self._versions.add(
            files,
            by=by,
            note=note or "in shadow: " + ", ".join(str(rule.get("id")) for rule in rules),
            expected=active.id,
            status="testing" if testing else "released",
            on=active.on,
            **active.settings,
        )

    def promote(self, rule: str, *, by: str, note: str = "") -> RuleVersion:
        """Turn on a rule that is in shadow."""
        active = self._versions.active()
        files = {**active.files, **turn_on(active.files, rule)}
        on = (*active.on, rule)
        note = note or f"`{rule}` is on"
        return self._versions.add(files, by=by, note=note, expected=active.id, on=on, **active.settings)

    def change_agent(
        self,
        agent: str,
        *,
        by: str,
        mode: str | None = None,
        rules_on: bool | None = None,
        label: str | None = None,
        note: str = "",
    ) -> RuleVersion:
        """Another execution mode, another version of the manifest, or the rules of one agent on or off. `*`: the rules
        of every agent. Raises Unusable, such as for a rule that pauses in mode `request`."""
        active = self._versions.active()
        known = {policy.agent or "*" for policy in self._versions.load(active).policies}
        if agent not in known:
            raise BadRequest(f"the rules name no agent `{agent}`; they name {', '.join(sorted(known))}")
        off = tuple(name for name in active.off if name != agent) if rules_on is not None else active.off
        changed: dict[str, Any] = {
            "modes": active.modes | ({agent: mode} if mode is not None else {}),
            "labels": active.labels | ({agent: label} if label is not None else {}),
            "off": (*off, agent) if rules_on is False else off,
        }
        what = {"mode": mode, "rules": None if rules_on is None else "on" if rules_on else "off", "version": label}
        changes = ", ".join(f"{name} {value}" for name, value in what.items() if value is not None)
        if not changes:
            raise BadRequest("nothing to change: mode, rules_on or label")
        changed |= {"folder": active.folder, "on": active.on}
        return self._versions.add(
            active.files, by=by, note=note or f"`{agent}`: {changes}", expected=active.id, **changed
        )

    # -- what would have changed ----------------------------------------------------------------------------------

    def compare(
        self, files: Mapping[str, str] | None = None, *, version: str | None = None, most: int = MOST_EVENTS
    ) -> BacktestReport:
        """What these rules, as `activate` would bring them into force, or those of a version, would have done to the
        recorded traffic, beside the rules in force: `flips` are the decisions that differ."""
        if (files is None) == (version is None):
            raise BadRequest("pass either `files` or `version`")
        active = self._versions.active()
        if files is not None:
            check_size(files, active.files)
            policies = self._versions.check(files, **_carried_settings(active)).policies
        else:
            policies = self._versions.load(self._versions.get(str(version))).policies
        against = self._versions.load(active).policies
        return compare_policies(self._guard.store, policies, against, most=most)

    def shadow_report(self, *, rule: str | None = None) -> ShadowReport:
        """The decisions that rules in shadow would have changed."""
        return shadow_report(self._guard.store, rule=rule)


def _carried_settings(active: RuleVersion) -> dict[str, Any]:
    """The settings of the version in force that apply to new text too. Its folder does not: new text has no files."""
    return {name: value for name, value in active.settings.items() if name != "folder"}


def _unenforced_rules(policies: Sequence[GuardPolicy]) -> list[str]:
    return [line for policy in policies for line in cannot_prevent(policy)]


def _agents(policies: Sequence[GuardPolicy], tool: str | None) -> list[str | None]:
    """A rule of every agent would give rules to agents that have none, and then their calls would no longer be refused.
    So it is added to each agent that may call the tool, unless there are rules of every agent already."""
    agents = list(dict.fromkeys(policy.agent for policy in policies))
    able = [policy.agent for policy in policies if tool is None or policy.tools is None or tool in policy.tools]
    return [None] if None in agents else list(dict.fromkeys(able)) or agents


# -- rules that the record suggests ------------------------------------------------------------------------------------


class Proposals:
    def __init__(self, guard: Guard, rules: Rules, clock: Callable[[], float]) -> None:
        self._guard, self._rules, self._clock = guard, rules, clock

    def mine(
        self,
        *,
        by: str,
        agent: str | None = None,
        min_support: int = MIN_SUPPORT,
        hold_out: float = HOLD_OUT,
    ) -> Sequence[StoredProposal]:
        """Look for rules that always held in the calls that were made, and store those that are new. One that was
        dismissed or accepted is not proposed again."""
        options = ProposalOptions(min_support=min_support, hold_out=hold_out, agent=agent)
        report = mine_proposals(lambda: [StoreTrace(self._guard.store, only_made=True)], options)
        known = {one.id for one in self._rules.list()}
        added: builtins.list[StoredProposal] = []
        for one in (one for one in report.proposals if one.id not in known):
            id = f"proposal-{short_digest([agent, one.rule])}"
            with self._guard.store.transaction("") as transaction:
                if transaction.followed(StoredProposal, id) is None:
                    now = self._clock()
                    new = StoredProposal(
                        id=id,
                        at=now,
                        agent=agent,
                        proposal=msgspec.to_builtins(one),
                        calls=report.calls,
                        created_at=now,
                        created_by=by,
                    )
                    added.append(transaction.put_followed(new))
        return added

    def list(self, *, status: ProposalStatus | None = None, limit: int = 200) -> Sequence[StoredProposal]:
        """The strongest first."""
        found = each_followed(self._guard.store, StoredProposal, status=status)
        return sorted(found, key=lambda one: -one.proposal.get("strength", 0.0))[:limit]

    def get(self, proposal_id: str) -> StoredProposal:
        with self._guard.store.transaction("") as transaction:
            found = transaction.followed(StoredProposal, proposal_id)
        if found is None:
            raise NotFound(f"there is no proposal `{proposal_id}`")
        return found

    def try_out(self, proposal_id: str) -> BacktestReport:
        """What this rule alone would have done to the recorded traffic."""
        one = self.get(proposal_id)
        policies = load_guard([one.proposal["rule"]]).policies
        if one.agent is not None:
            policies = tuple(replace(policy, agent=one.agent) for policy in policies)
        return compare_policies(self._guard.store, policies, None)

    def accept(
        self, proposal_id: str, *, by: str, note: str | None = None, testing: bool = False
    ) -> tuple[StoredProposal, RuleVersion]:
        """Into shadow: judged and recorded from now on, without stopping anything. `testing`: into a version that is
        not in force yet."""
        one = self._open(proposal_id)
        rule: dict[str, Any] = one.proposal["rule"]
        tool = next(iter(one.proposal["tools"]), None)  # whose calls it stops
        version = self._rules.shadow([rule], by=by, agent=one.agent, note=note or "", testing=testing, tool=tool)
        return self._decide(one, "accepted", by, note, version.id), version

    def dismiss(self, proposal_id: str, *, by: str, note: str | None = None) -> StoredProposal:
        return self._decide(self._open(proposal_id), "dismissed", by, note, None)

    def _open(self, proposal_id: str) -> StoredProposal:
        one = self.get(proposal_id)
        if one.status != "open":
            raise Conflict(f"the proposal is {one.status} already")
        return one

    def _decide(
        self, one: StoredProposal, status: ProposalStatus, by: str, note: str | None, rules: str | None
    ) -> StoredProposal:
        now = self._clock()
        decided = replace(one, status=status, decided_by=by, decided_at=now, note=redacted(note), rules=rules, at=now)
        try:
            with self._guard.store.transaction("") as transaction:
                write_change(
                    transaction, now, f"proposal {status}", by, proposal=one.id, rule=one.proposal["rule"]["id"]
                )
                return transaction.put_followed(decided)
        except StoreConflict:
            raise Conflict("somebody else has decided at the same moment") from None
