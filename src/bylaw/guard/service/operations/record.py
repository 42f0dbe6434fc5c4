"""The record: decisions as they come, how many of each kind over time, and the audit (search, verify, export)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from bylaw.guard.audit.report import AuditReport, is_about, row_line, select_rows
from bylaw.guard.audit.verify import verify
from bylaw.guard.service.errors import BadRequest
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import AuditHead, AuditRow, EventRow
from bylaw.model.rule import Action

MOST_READ = 50_000
"""events that are searched for one answer"""
MOST_BUCKETS = 500
_PAGE = 500


class DecisionView(Struct, frozen=True, kw_only=True):
    """One attempt, with every rule that matched and the result."""

    seq: int
    at: float
    session: str
    tool: str
    arguments: Any = None
    agent: str | None = None
    run: str | None = None
    parent_run: str | None = None
    call_id: str = ""
    action: str
    """what was applied"""
    decided_by: str | None = None
    reason: str = ""
    matches: tuple[dict[str, Any], ...] = ()
    """every rule that matched: rule, then, message, reason, line, shadow, certain"""
    review: str | None = None
    would: str | None = None
    """the action if shadow rules were enforced"""
    blind: tuple[str, ...] = ()
    counters: dict[str, int] = {}
    denial: str | None = None
    version: str | None = None
    """of the agent, from a manifest"""
    policy: str = ""
    latency_us: float | None = None
    redacted: bool = False
    """whether secrets were removed from the arguments"""
    resumes: str | None = None
    """the review that it resumes"""
    notes: tuple[str, ...] = ()


class Page(Struct, frozen=True, kw_only=True):
    """Decisions, the newest first."""

    decisions: list[DecisionView]
    before: int | None = None
    """pass it on to read older ones; None: there are none"""
    searched: int = 0
    """events that were looked at"""


class Bucket(Struct, frozen=True, kw_only=True):
    """Decisions between `start` and `start + width`."""

    start: float
    width: float
    allow: int = 0
    pause: int = 0
    block: int = 0
    terminate_session: int = 0
    would: int = 0
    """that shadow rules would have changed"""


class Series(Struct, frozen=True, kw_only=True):
    since: float
    until: float
    buckets: list[Bucket]
    rules: dict[str, list[int]] = field(default_factory=dict)
    """rule → matches in each bucket"""
    complete: bool = True
    """False if there were more events than are read for one answer: then the earliest buckets are too low"""


def decision_view(row: EventRow) -> DecisionView | None:
    """None for rows of another kind, and for those that no guard has written. A call that was judged after it ran is
    shown as allowed by `on_unreachable`."""
    attempt, decision = row.data.get("attempt"), row.data.get("decision")
    if row.kind == "taken" and "matches" in row.data:
        decision = _past_call(row.data)
    elif row.kind != "decision":
        return None
    if not isinstance(attempt, dict) or not isinstance(decision, dict):
        return None
    matches = decision.get("matches")
    counters = decision.get("counters")
    return DecisionView(
        seq=row.seq,
        at=row.at,
        session=row.session,
        tool=str(attempt.get("tool")),
        arguments=attempt.get("arguments"),
        agent=_name(attempt.get("agent") or decision.get("agent")),
        run=_name(attempt.get("run")),
        parent_run=_name(attempt.get("parent_run")),
        call_id=str(decision.get("call_id") or ""),
        action=str(decision.get("action")),
        decided_by=decision.get("decided_by"),
        reason=str(decision.get("reason") or ""),
        matches=tuple(matches) if isinstance(matches, list) else (),
        review=decision.get("review"),
        would=decision.get("would"),
        blind=tuple(decision.get("blind") or ()),
        counters=counters if isinstance(counters, dict) else {},
        denial=decision.get("denial"),
        version=decision.get("version"),
        policy=str(decision.get("policy") or ""),
        latency_us=decision.get("latency_us"),
        redacted="redacted" in row.data or "unwritten" in row.data,
        resumes=row.data.get("resumes"),
        notes=tuple(decision.get("notes") or ()),
    )


def _past_call(data: dict[str, Any]) -> dict[str, Any]:
    given = data["matches"] if isinstance(data["matches"], list) else []
    enforced = [one for one in given if isinstance(one, dict) and not one.get("shadow")]
    actions = {str(one.get("then")): one for one in enforced}
    would = max(
        (action for action in Action if action in actions), key=lambda one: one.strictness, default=Action.ALLOW
    )
    stops = would is not Action.ALLOW
    return {
        "action": "allow",
        "decided_by": "on_unreachable",
        "reason": f"it ran before it was judged; {actions[would].get('message')}"
        if stops
        else "it ran before it was judged",
        "matches": given,
        "would": would.value if stops else None,
        "call_id": data.get("call_id"),
        "policy": data.get("policy"),
    }


def _name(value: Any) -> str | None:
    """A name that could not be written is an object that says why."""
    return value if value is None or isinstance(value, str) else str(value)


def read_said(kind: str, said: Mapping[str, Any]) -> tuple[str, Any]:
    """The role and the text of an observation, as its row holds them in `kind` and `said`."""
    if kind == "response":
        return "assistant", said.get("text")
    return str(said.get("role") or kind), said.get("content")


def encode_view(view: Any) -> bytes:
    """The view as JSON. A name that was refused for it may hold half of a character, which becomes a question mark."""
    try:
        return msgspec.json.encode(view)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(view), ensure_ascii=False).encode("utf-8", "replace")


def newest_events(store: GuardStore, *, before: int | None = None, most: int = MOST_READ) -> Iterator[EventRow]:
    """The log backwards, one page in memory at a time."""
    last = store.last_event() if before is None else before - 1
    end = max(0, last - most)
    while last > end:
        first = max(end, last - _PAGE)
        rows = store.events(after=first, limit=last - first)
        yield from reversed([row for row in rows if row.seq <= last])
        last = first


def _rules_of(view: DecisionView) -> set[str]:
    """The rules that matched or decided."""
    matched = {str(one.get("rule")) for one in view.matches}
    return matched if view.decided_by is None else matched | {str(view.decided_by)}


def _fits(view: DecisionView, filters: Mapping[str, str | None], rule: str | None) -> bool:
    if any(value is not None and getattr(view, name) != value for name, value in filters.items()):
        return False
    return rule is None or rule in _rules_of(view)


class Decisions:
    def __init__(self, store: GuardStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def recent(
        self,
        *,
        limit: int = 100,
        before: int | None = None,
        action: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        session: str | None = None,
        rule: str | None = None,
    ) -> Page:
        """The newest that pass all filters. `rule`: that matched or decided."""
        if action is not None and action not in list(Action):
            raise BadRequest(f"`{action}` is not an action: {', '.join(Action)}")
        wanted = {"action": action, "agent": agent, "tool": tool, "session": session}
        found: list[DecisionView] = []
        searched, last = 0, None
        for row in newest_events(self._store, before=before):
            searched, last = searched + 1, row.seq
            view = decision_view(row)
            if view is None or not _fits(view, wanted, rule):
                continue
            found.append(view)
            if len(found) == limit:
                break
        more = last is not None and last > 1 and (len(found) == limit or searched == MOST_READ)
        return Page(decisions=found, before=last if more else None, searched=searched)

    def series(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        buckets: int = 60,
        rule: str | None = None,
        **filters: str | None,
    ) -> Series:
        """Decisions over time, by default of the last hour. `filters`: action, agent, tool and session, as in
        `recent`."""
        until = self._clock() if until is None else until
        since = until - 3600.0 if since is None else since
        if not 1 <= buckets <= MOST_BUCKETS or not since < until:
            raise BadRequest(f"buckets={buckets}: expected 1 to {MOST_BUCKETS}, and since before until")
        width = (until - since) / buckets
        counts = [dict.fromkeys((*map(str, Action), "would"), 0) for _ in range(buckets)]
        rules: dict[str, list[int]] = {}
        searched = 0
        for row in newest_events(self._store):
            searched += 1
            if row.at < since - 60:  # rows of several processes may stand slightly out of order
                break
            view = decision_view(row)
            if view is None or not since <= row.at <= until or not _fits(view, filters, rule):
                continue
            place = min(buckets - 1, int((row.at - since) / width))
            if view.action in counts[place]:
                counts[place][view.action] += 1
            counts[place]["would"] += view.would is not None
            for name in _rules_of(view):
                rules.setdefault(name, [0] * buckets)[place] += 1
        filled = [Bucket(start=since + place * width, width=width, **one) for place, one in enumerate(counts)]
        return Series(since=since, until=until, buckets=filled, rules=rules, complete=searched < MOST_READ)


MOST_SEARCHED = 50_000
"""rows that one search looks at"""


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, the newest first."""

    rows: list[AuditRow]
    lines: list[str]
    """the rows in one line each, for people"""
    before: int | None = None
    """pass it on to read older ones"""
    head: str


class Audit:
    def __init__(self, store: GuardStore) -> None:
        self._store = store

    def query(
        self,
        *,
        session: str | None = None,
        rule: str | None = None,
        kind: str | None = None,
        text: str | None = None,
        since: float | None = None,
        until: float | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """Rows that pass all filters. `text`: that occurs anywhere in the row, in any case."""

        def passes(row: AuditRow) -> bool:
            data: dict[str, Any] = row.data
            return (
                (since is None or row.at >= since)
                and (until is None or row.at <= until)
                and kind in (None, data.get("kind"))
                and session in (None, data.get("session"), data.get("call_session"))
                and (rule is None or is_about(data, rule))
                and (text is None or text.casefold() in json.dumps(data, ensure_ascii=False, default=str).casefold())
            )

        head = self._store.audit_head()
        last = head.seq if before is None else min(before - 1, head.seq)
        found: list[AuditRow] = []
        searched = 0
        while last > 0 and len(found) < limit and searched < MOST_SEARCHED:
            first = max(0, last - 500)
            page = [row for row in self._store.audit(after=first, limit=last - first) if row.seq <= last]
            for row in reversed(page):
                searched += 1
                last = row.seq - 1
                if passes(row):
                    found.append(row)
                    if len(found) == limit:
                        break
            else:
                last = first
        return AuditPage(
            rows=found, lines=[row_line(row) for row in found], before=last + 1 if last > 0 else None, head=str(head)
        )

    def verify(self, *, heads: list[str] | None = None) -> AuditReport:
        """Is the chain intact, and do its verdicts follow? `heads`: `SEQ:HASH` that were noted elsewhere."""
        known = []
        for text in heads or ():
            seq, _, hash = text.partition(":")
            if not (seq.isascii() and seq.isdigit() and len(seq) < 19 and hash):
                raise BadRequest(f"`{text[:80]}` is not a head: expected SEQ:HASH")
            known.append(AuditHead("", int(seq), hash))
        return verify(self._store, [], known=known)

    def export(
        self, *, session: str | None = None, rule: str | None = None, since: float | None = None
    ) -> Iterator[str]:
        """Rows as JSON lines, the oldest first, with all that is needed to compute the hashes again."""
        for row in select_rows(self._store, session=session, rule=rule, since=since):
            yield json.dumps(msgspec.structs.asdict(row), default=str) + "\n"
