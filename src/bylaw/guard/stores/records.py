"""The records of a store: sessions, the event log, the audit chain, reviews, and the records of the follow-up.

Records of the follow-up (incidents, alerts, notifications, …) share one table: each has an id, the session that it is
about, a status, and a version that grows with each write. What the service stores beside the guard (rule versions,
keys, proposals, …) is in that table too, so any store holds it, and the audit chain vouches for it. The class names are
part of the file format.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from bylaw.model.condition import Reach
from bylaw.model.rule import Severity

ReviewStatus: TypeAlias = Literal["pending", "approved", "rejected", "expired", "used"]
IncidentStatus: TypeAlias = Literal["unresolved", "acknowledged", "solved"]
AlertStatus: TypeAlias = Literal["pending", "acknowledged"]
NotificationStatus: TypeAlias = Literal["pending", "delivered", "failed"]
PinStatus: TypeAlias = Literal["approved", "changed"]
Recipient: TypeAlias = Literal["first", "second"]
"""whom a notification is for; reviews escalate to the second"""


def check_moment(at: float) -> None:
    """Raises ValueError unless this is a time: everything would be older than NaN."""
    if not math.isfinite(at):
        raise ValueError(f"before={at!r}: expected a time in seconds since 1970")


class SessionRecord(Struct):
    """One session as it was last written."""

    session: str
    version: int = 0
    """grows with each write and is never reused, so that a cache can tell whether it is current"""
    state: bytes = b""
    """the state of the rules; b"" if nothing was written yet"""
    terminated: str | None = None
    """why no further call of this session may run"""


class EventRow(Struct, frozen=True):
    """One row of the event log: a decision, a result, an observation, a review, a switch, …"""

    session: str
    kind: str
    at: float
    data: dict[str, Any]
    seq: int = 0
    """assigned by the store: 1, 2, 3 … over all sessions"""


class AuditRow(Struct, frozen=True):
    """One link of the audit chain. `hash` covers the rest of the row and the hash of the row before."""

    at: float
    data: dict[str, Any]
    seq: int = 0
    previous: str = ""
    hash: str = ""
    stored: str = ""
    """digests of the records of other tables that were written with it, as JSON: `{table: {key: digest or null}}`"""


class AuditHead(Struct, frozen=True):
    """The end of the audit chain. It is stored apart from the rows, so that rows cut off at the end are noticed."""

    chain: str
    """the id of the chain, which stands before its first row"""
    seq: int
    """of the last row; 0 if there is none"""
    hash: str
    """of the last row; `chain` if there is none"""

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


class Digest(NamedTuple):
    """One record as it is stored now."""

    number: int
    """its place in the table"""
    key: str
    digest: str


class ReviewRecord(Struct, frozen=True, kw_only=True):
    """A person's decision about one paused action."""

    kind: Literal["anomaly_review"] = "anomaly_review"
    id: str
    session: str
    agent: str | None = None
    run: str | None = None
    tool: str
    arguments: Any = None
    action_hash: str
    """SHA-256 of the canonical action: tool, arguments, agent, and the session it is bound to"""
    policy: str
    """the rules that were in force"""
    bound_to: str = ""
    """a digest of the rules that paused the call; `policy` if there is none"""
    rules: tuple[str, ...] = ()
    reason: str = ""
    created_at: float
    expires_at: float | None = None
    status: ReviewStatus = "pending"
    uses_left: int = 1
    decided_by: str | None = None
    decided_at: float | None = None
    note: str | None = None
    edited: Any = None
    """{tool, arguments} that were approved instead, without secrets"""
    edited_hash: str | None = None
    """the hash of that action, computed before secrets were removed"""
    asked_by: str | None = None
    above: tuple[str, ...] = ()
    """the agents above the one that asks, which cannot answer either"""
    needs: tuple[dict[str, Any], ...] = ()
    """for each rule that paused: how many `approvals` it needs, and of which `approvers`; empty: one, of anybody"""
    approved_by: tuple[str, ...] = ()
    """who has approved the call as it is now"""
    version: int = 0
    """assigned by the store; 0 is a review that was never stored"""

    @property
    def is_open(self) -> bool:
        """Pending, or approved with uses left. Expiry is the guard's decision, since the guard has the clock."""
        return self.status == "pending" or (self.status == "approved" and self.uses_left > 0)

    @property
    def touched_at(self) -> float:
        return max(self.created_at, self.decided_at or self.created_at)

    def can_be_pruned(self, *, before: float) -> bool:
        has_expired = self.expires_at is not None and self.expires_at < before
        return self.touched_at < before and (has_expired or not self.is_open)


class FollowRecord(Struct, frozen=True, kw_only=True):
    """The fields that all records of the follow-up share."""

    open_as: ClassVar[frozenset[str]] = frozenset()
    """statuses in which the record is never pruned"""

    id: str
    session: str = ""
    status: str = ""
    at: float = 0.0
    """time of the last change; for a pending notification, the time at which it is due"""
    version: int = 0
    """assigned by the store; 0 is a record that was never stored"""

    @property
    def is_open(self) -> bool:
        return self.status in self.open_as


class Position(FollowRecord, frozen=True, kw_only=True):
    """How far the event log was followed."""

    open_as: ClassVar[frozenset[str]] = frozenset({""})

    seq: int = 0


class Following(FollowRecord, frozen=True, kw_only=True):
    """The state of the rules in one session, as far as it was followed. Its id is the session."""

    state: bytes = b""
    policy: str = ""
    """hash of the rules that it was followed with"""
    since: int = 0
    """these rules apply to events after this number"""
    folded: int = 0
    """events that the state is based on"""
    last: float | None = None
    """time of the latest of them"""
    newest: tuple[str, ...] = ()
    """digests of the events at that time"""
    asked: dict[str, str] = {}
    """reviews of the session → the tool that they are about"""
    inexact: bool = False
    """whether an event came too late to be inserted in order"""
    lost: tuple[str, ...] = ()
    """rules whose state is unknown, because they depend on a value that was not recorded"""
    unjudged: dict[str, int] = {}
    """rule → how often it could not be judged for that reason"""


class WideWindow(FollowRecord, frozen=True, kw_only=True):
    """The state of the rules that count over an agent, or over all agents. Its id names which."""

    state: bytes = b""


class Detection(FollowRecord, frozen=True, kw_only=True):
    """One rule broken by one event. Its id is derived from both and the session, so that none is stored twice."""

    rule: str
    event: str
    """digest of the deciding event"""
    seq: int
    """number of that event in the log"""
    when: float
    """time of that event"""
    message: str = ""
    then: str = ""
    severity: Severity = Severity.ERROR
    stopped: bool = False
    """whether the guard stopped the call; False means that only the follow-up noticed"""
    certain: bool = True
    line: str | None = None
    tool: str | None = None
    call_id: str | None = None
    run: str | None = None
    agent: str | None = None
    incident: str = ""
    """the incident that it is counted in"""
    over: Reach = "session"
    """whose attempts the rule counted; then `session` holds the agent's name, or nothing for all agents …"""
    call_session: str | None = None
    """… and this is the session of the deciding call"""


class Change(Struct, frozen=True, kw_only=True):
    """Who changed an incident, how, and when."""

    at: float
    by: str
    what: str
    """`opened`, `acknowledged`, `assigned`, `noted`, `solved`, `withdrawn`"""
    note: str | None = None


class Incident(FollowRecord, frozen=True, kw_only=True):
    """All detections of one rule in one session, until a person resolves it."""

    open_as: ClassVar[frozenset[str]] = frozenset({"unresolved", "acknowledged"})

    status: IncidentStatus = "unresolved"
    rule: str
    number: int = 1
    """of this rule in this session: a repeat after the incident was solved opens the next one"""
    severity: Severity = Severity.ERROR
    then: str = ""
    """the action of the rule"""
    message: str = ""
    """of the earliest detection, like the fields down to `first_event`"""
    line: str | None = None
    agent: str | None = None
    run: str | None = None
    tool: str | None = None
    call_id: str | None = None
    event: int = 0
    """number of the deciding event in the log"""
    first_event: str = ""
    """its digest"""
    count: int = 0
    """detections; 0 if late events showed that none happened"""
    stopped: int = 0
    """detections whose call the guard stopped"""
    over: Reach = "session"
    """as in a detection, like the next field"""
    call_session: str | None = None
    first_seen: float = 0.0
    last_seen: float = 0.0
    opened_at: float = 0.0
    assignee: str | None = None
    history: tuple[Change, ...] = ()
    notify: bool = False
    """whether a notification of its opening was sent, so that its end is notified too"""


class Alert(FollowRecord, frozen=True, kw_only=True):
    """`anomaly_alert`: a `pause` rule matched when the call had already run. A person has to acknowledge it."""

    open_as: ClassVar[frozenset[str]] = frozenset({"pending"})

    kind: Literal["anomaly_alert"] = "anomaly_alert"
    status: AlertStatus = "pending"
    incident: str
    rule: str
    tool: str | None = None
    call_id: str | None = None
    message: str = ""
    severity: Severity = Severity.ERROR
    over: Reach = "session"
    """as in a detection, like the next field"""
    call_session: str | None = None
    created_at: float = 0.0
    acknowledged_by: str | None = None
    acknowledged_at: float | None = None


class Delivery(Struct, frozen=True, kw_only=True):
    """One attempt to deliver a notification."""

    at: float
    seconds: float
    answer: int | None = None
    """the HTTP status, or the code of a mail server; None without an answer"""
    problem: str | None = None
    channel: str = "webhook"
    """`webhook`, `slack` or `email`"""
    final: bool = False
    """whether trying again is of no use"""


class Notification(FollowRecord, frozen=True, kw_only=True):
    """One entry of the outbox. Its id is the same in every delivery, so that a receiver can drop repeats."""

    open_as: ClassVar[frozenset[str]] = frozenset({"pending"})

    status: NotificationStatus = "pending"
    to: Recipient = "first"
    event: str
    """`incident.opened`, `incident.solved`, `review.opened`, `review.expiring`, `review.escalated`, `test`"""
    body: dict[str, Any]
    created_at: float
    deliveries: tuple[Delivery, ...] = ()


class ToolPin(FollowRecord, frozen=True, kw_only=True):
    """The approved definition of a tool of an MCP server. Its id is `server/tool`."""

    open_as: ClassVar[frozenset[str]] = frozenset({"approved", "changed"})

    status: PinStatus = "approved"
    server: str
    tool: str
    digest: str
    definition: dict[str, Any]
    """the definition that a model sees: title, description, schemas, annotations"""
    waiting: dict[str, Any] | None = None
    """the current definition, if it is not approved"""
    by: str | None = None
    """who has approved it; None for the first time that it was seen"""


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
    on: tuple[str, ...] = ()
    """rules that were in shadow and were turned on over the API, as `id` or `agent/id`: in its text they are on"""

    SETTINGS: ClassVar[tuple[str, ...]] = ("folder", "modes", "labels", "off")
    """the fields that change what its text means"""

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.SETTINGS}


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
    """A person is looking at a review. Its id is that of the review."""

    by: str
