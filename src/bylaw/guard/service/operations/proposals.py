"""Proposals: rules that the record suggests, tried on it, accepted into shadow or a testing version, or dismissed."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bylaw.guard.backtest.report import BacktestReport
from bylaw.guard.guard import Guard
from bylaw.guard.proposals.propose import HOLD_OUT, MIN_SUPPORT, ProposalOptions, mine_proposals
from bylaw.guard.service.errors import Conflict, NotFound
from bylaw.guard.service.operations.rules import Rules, compare_policies
from bylaw.guard.service.store_trace import StoreTrace
from bylaw.guard.stores.ports import StoreConflict, each_followed, write_change
from bylaw.guard.stores.records import ProposalStatus, RuleVersion, StoredProposal
from bylaw.model.canonical import short_digest
from bylaw.rules import load_guard
from bylaw.text.redaction.redactor import redacted


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
        for one in report.proposals:
            id = f"proposal-{short_digest([agent, one.rule])}"
            if one.id in known:
                continue
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
            policies = tuple(msgspec.structs.replace(policy, agent=one.agent) for policy in policies)
        return compare_policies(self._guard, policies, None)

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
