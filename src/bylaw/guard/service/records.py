"""What the service stores beside the guard. The records are in `stores`, since every audit reads them."""

from __future__ import annotations

from typing import Any

from bylaw.guard.stores.ports import Transaction
from bylaw.guard.stores.records import EventRow
from bylaw.guard.stores.service_records import (
    ActiveRules,
    Claim,
    Credential,
    CredentialKind,
    ProposalStatus,
    RuleVersion,
    RuleVersionStatus,
    Scope,
    StoredProposal,
)

__all__ = [
    "ActiveRules",
    "Claim",
    "Credential",
    "CredentialKind",
    "ProposalStatus",
    "RuleVersion",
    "RuleVersionStatus",
    "Scope",
    "StoredProposal",
    "write_change",
]


def write_change(transaction: Transaction, now: float, what: str, by: str, **about: Any) -> None:
    """A row of the event log and the audit about something that a person did to the service."""
    told = " ".join(str(value) for value in about.values() if value)
    transaction.append_to_both(EventRow("", "service", now, {"how": what, "why": f"{told} by {by}", "by": by, **about}))
