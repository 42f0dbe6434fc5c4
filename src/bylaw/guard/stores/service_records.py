"""What the service stores beside the guard, as records of the follow-up: any store holds them, and the audit chain
vouches for them. The class names are part of the file format."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import field

from bylaw.guard.stores.records import FollowRecord

Scope: TypeAlias = Literal["agent", "operator", "admin"]
CredentialKind: TypeAlias = Literal["key", "login"]
RuleVersionStatus: TypeAlias = Literal["testing", "released"]
ProposalStatus: TypeAlias = Literal["open", "accepted", "dismissed"]


class RuleVersion(FollowRecord, frozen=True, kw_only=True):
    """One set of rules, as text. It never changes; a rollback is a new version with the text of an old one."""

    open_as: ClassVar[frozenset[str]] = frozenset({"testing", "released"})

    status: RuleVersionStatus = "released"
    """`testing`: was never in force"""
    number: int
    files: dict[str, str]
    """name → text"""
    folder: str | None = None
    """of rules that were read from files: what their paths are relative to. None: their paths lead nowhere"""
    policy: str
    """hash of the rules"""
    by: str
    note: str = ""
    origin: Literal["file", "api"] = "api"
    before: str | None = None
    """the version that was in force when this one was made"""
    restores: str | None = None
    """the earlier version that this one brought back into force"""
    modes: dict[str, str] = field(default_factory=dict)
    """agent → execution mode in place of that of the files; the agent without a name is `*`, here and below"""
    labels: dict[str, str] = field(default_factory=dict)
    """agent → the version of a manifest in place of the deployed one"""
    off: tuple[str, ...] = ()
    """agents whose rules are switched off"""


class ActiveRules(FollowRecord, frozen=True, kw_only=True):
    """Which version is in force. There is one such record, `active`."""

    open_as: ClassVar[frozenset[str]] = frozenset({""})

    rules: str
    """id of the RuleVersion"""
    files: str = ""
    """digest of the rule files that were read last: if they change, they become the next version"""


class Credential(FollowRecord, frozen=True, kw_only=True):
    """An API key, or a person who has signed in to the console. The secret itself is not stored. `session` holds the id
    again, since stores find records by it."""

    open_as: ClassVar[frozenset[str]] = frozenset({"valid"})

    status: Literal["valid", "revoked", "expired"] = "valid"
    """`expired` is shown and not stored"""
    kind: CredentialKind = "key"
    name: str
    """of the person or program; answers and changes are recorded under it"""
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] = ()
    """for the scope `agent`: whose calls it may ask for; `*`: of every agent"""
    digest: str
    """SHA-256 of the secret, which is random and long, so it needs no salt"""
    created_at: float
    created_by: str = ""
    expires_at: float | None = None
    revoked_by: str | None = None
    made_with: str | None = None
    """of a login: the id of the key that it was made with, and which it does not outlive"""


class StoredProposal(FollowRecord, frozen=True, kw_only=True):
    """A rule that was mined from the record, until a person accepts or dismisses it."""

    open_as: ClassVar[frozenset[str]] = frozenset({"open"})

    status: ProposalStatus = "open"
    agent: str | None = None
    proposal: dict[str, Any]
    """as `Proposal` in `guard.proposals`"""
    calls: int = 0
    """calls of the traffic that it was mined from"""
    created_at: float
    created_by: str = ""
    decided_by: str | None = None
    decided_at: float | None = None
    note: str | None = None
    rules: str | None = None
    """the rule version that it was accepted into"""


class Claim(FollowRecord, frozen=True, kw_only=True):
    """Somebody is looking at a review. Its id is that of the review."""

    by: str
