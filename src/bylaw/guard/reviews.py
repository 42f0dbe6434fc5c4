"""Reviews: a person approves or rejects one exact action. An approval can be used a limited number of times."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.json_values import RefusedAttempt, check_json
from bylaw.guard.model import Attempt, Decision, Limits, Options, is_name
from bylaw.guard.stores.ports import GuardStore, Transaction
from bylaw.guard.stores.records import EventRow, ReviewRecord, ReviewStatus
from bylaw.model.canonical import canonical_json
from bylaw.model.identity import identity, likeness
from bylaw.model.rule import Action, GuardRule
from bylaw.text.redaction.redactor import Redactor

MOST_READ = 100_000
"""reviews that `list` reads at most"""
MOST_USES = 1_000_000
OTHER_CALL = "the call is not the one that was approved"

_REDACT = Redactor()
_LIMITS = Limits()


class NotAnswered(ValueError):
    """The review cannot be answered in this way; the message says why."""


def action_hash(tool: str, arguments: Any, agent: str | None, bound_to: str = "") -> str:
    """SHA-256 of the canonical action. An approval applies to exactly this action, and to the rules that it is bound
    to."""
    given = {} if arguments is None else arguments
    content = {"tool": tool, "arguments": given, "agent": agent, "policy": bound_to}
    return "sha256:" + hashlib.sha256(canonical_json(content)).hexdigest()


class ReviewTerms(Struct, frozen=True):
    """What the answer to a review is bound to, beside the action."""

    needs: tuple[dict[str, Any], ...] = ()
    above: tuple[str, ...] = ()
    bound_to: str = ""


_NO_TERMS = ReviewTerms()


def needed_approvals(rules: Iterable[tuple[str, GuardRule]]) -> tuple[dict[str, Any], ...]:
    """What each of these rules demands of an approval, if it demands more than one person."""
    return tuple(
        {"rule": name, "approvals": rule.approvals, "approvers": list(rule.approvers)}
        for name, rule in rules
        if rule.then is Action.PAUSE and (rule.approvals > 1 or rule.approvers)
    )


def open_review(
    transaction: Transaction,
    attempt: Attempt,
    decision: Decision,
    options: Options,
    now: float,
    *,
    redact: Redactor = _REDACT,
    terms: ReviewTerms = _NO_TERMS,
    is_known: Callable[[str], bool] = lambda policy: False,
) -> ReviewRecord:
    """The open review of this action, or a new one. `is_known`: whether rules that were in force before are known, so
    that an approval under these can be used."""
    digest = action_hash(attempt.tool, attempt.arguments, attempt.agent, terms.bound_to or decision.policy)
    known = transaction.find_review(attempt.session, digest)
    is_usable = known is not None and (known.policy == decision.policy or is_known(known.policy))
    if known is not None and is_usable and not _is_over(known, now):
        return known
    review = ReviewRecord(
        id=f"review-{uuid.uuid4().hex[:16]}",
        session=attempt.session,
        agent=attempt.agent,
        run=attempt.run,
        tool=attempt.tool,
        arguments=redact(attempt.arguments),
        action_hash=digest,
        policy=decision.policy,
        bound_to=terms.bound_to,
        rules=decision.matched,
        reason=redact(decision.reason),
        created_at=now,
        expires_at=None if options.review_seconds is None else now + options.review_seconds,
        uses_left=options.review_uses,
        asked_by=attempt.agent,
        above=terms.above,
        needs=terms.needs,
    )
    review = transaction.put_review(review)
    _note(transaction, review, "opened", now)
    return review


def review_advice(review: ReviewRecord) -> str:
    """What an agent may do whose call this review pauses."""
    if review.status != "approved":
        missing = missing_approvals(review)
        many = f" ({missing} approvals are missing)" if missing > 1 else ""
        return f"wait for the review `{review.id}` to be answered{many}, then resume the call with it"
    if review.edited is not None and edited_hash(review) != review.edited_hash:
        return (
            f"the review `{review.id}` has approved another call in its place, whose secrets are not written down; "
            f"ask {review.decided_by} for its arguments, and resume that call with the review"
        )
    if review.edited is not None:
        return f"the review `{review.id}` has approved another call in its place; resume that one with the review"
    return f"this call is approved; resume it with the review `{review.id}`"


def approved_review(
    transaction: Transaction, review_id: str, attempt: Attempt, now: float
) -> tuple[ReviewRecord | None, str]:
    """The review that approves this attempt, or None with the reason."""
    review = transaction.review(review_id)
    if review is None or review.session != attempt.session:
        return None, f"there is no review `{review_id}` in this session"
    if review.status in ("approved", "pending") and _is_over(review, now):
        review = replace(review, status="expired")
        transaction.put_review(review)
        _note(transaction, review, "expired", now)
    if review.status != "approved":
        return None, f"the review is {review.status}"
    digest = action_hash(attempt.tool, attempt.arguments, attempt.agent, review.bound_to or review.policy)
    if digest != (review.action_hash if review.edited_hash is None else review.edited_hash):
        return None, OTHER_CALL
    return review, ""


def ask_more(
    transaction: Transaction, review: ReviewRecord, needs: Iterable[dict[str, Any]], now: float
) -> ReviewRecord | None:
    """The review, pending again, if these needs are not met by those who approved it; None if they are."""
    wider = replace(review, needs=(*review.needs, *(need for need in needs if need not in review.needs)))
    if not missing_approvals(wider):
        return None
    wider = transaction.put_review(replace(wider, status="pending", decided_by=None, decided_at=None))
    _note(transaction, wider, "reopened", now)
    return wider


def expire_open(store: GuardStore, transaction: Transaction, session: str, now: float) -> None:
    """No review outlives its session: an approval would let a call of the next one run."""
    statuses: tuple[ReviewStatus, ...] = ("pending", "approved")
    for status in statuses:
        for listed in store.reviews(status=status, session=session, limit=MOST_READ):
            review = transaction.review(listed.id)
            if review is not None and review.is_open:
                review = transaction.put_review(replace(review, status="expired"))
                _note(transaction, review, "expired", now)


def spend(transaction: Transaction, review: ReviewRecord, now: float) -> None:
    """Use the approval once."""
    left = review.uses_left - 1
    transaction.put_review(replace(review, uses_left=left, status="approved" if left else "used"))
    _note(transaction, review, "spent", now)


def edited_attempt(review: ReviewRecord, attempt: Attempt) -> Attempt | None:
    """The attempt as it was approved; None if secrets were removed from it, so that it is not known here."""
    if review.edited is None:
        return attempt
    edited = replace(attempt, tool=review.edited["tool"], arguments=review.edited["arguments"])
    return edited if edited_hash(review) == review.edited_hash else None


def edited_hash(review: ReviewRecord) -> str:
    """Of the edited call as it is written; if secrets were removed from it, another than that of the call."""
    edited = review.edited or {}
    return action_hash(edited["tool"], edited["arguments"], review.agent, review.bound_to or review.policy)


def _is_over(review: ReviewRecord, now: float) -> bool:
    return review.expires_at is not None and now > review.expires_at


def _note(transaction: Transaction, review: ReviewRecord, what: str, now: float) -> None:
    data: dict[str, Any] = {"review": review.id, "what": what, "tool": review.tool, "by": review.decided_by}
    if what == "opened":
        data["task"] = review.kind
    if what in ("approved", "partly approved"):
        data |= {"uses": review.uses_left, "edited": review.edited}
    if review.needs:
        data |= {"needs": list(review.needs), "approved_by": list(review.approved_by)}
    transaction.append_to_both(EventRow(review.session, "review", now, data))


def _check_note(note: Any) -> None:
    if note is not None and not isinstance(note, str):
        raise NotAnswered(f"note={note!r}: expected a text or None")


def _is_person(by: Any) -> bool:
    return isinstance(by, str) and bool(likeness(by))


def _check_seen(review: ReviewRecord, version: int | None, edited: dict[str, Any] | None) -> None:
    """Nobody approves a call that somebody else has put in the place of the one they have seen."""
    if version is not None and version != review.version:
        raise NotAnswered(f"the review has changed since you have seen it; its version is now {review.version}")
    if version is None and edited is None and review.edited is not None:
        who = review.approved_by[0] if review.approved_by else "somebody"
        why = f"`{who}` has edited the call; look at it again, then approve it with version={review.version}"
        raise NotAnswered(why)


def _check_call(edited: Any, limits: Limits) -> None:
    """An edit that no guard would accept must not be approved, since it could never run."""
    if not isinstance(edited, dict) or edited.keys() != {"tool", "arguments"}:
        raise NotAnswered("edited=… takes exactly `tool` and `arguments`")
    if not edited["tool"] or not is_name(edited["tool"]):
        raise NotAnswered("edited=…: `tool` is the name of a tool")
    try:
        check_json(edited["arguments"], limits)
    except RefusedAttempt as why:
        raise NotAnswered(f"edited=…: {why}") from None


class Reviews:
    """Lists, approves, rejects and waits for reviews."""

    poll = 0.05
    """seconds between two looks at a review"""

    def __init__(
        self,
        store: GuardStore,
        clock: Callable[[], float],
        redact: Redactor = _REDACT,
        limits: Limits = _LIMITS,
    ) -> None:
        self._store, self._clock = store, clock
        self._redact, self._limits = redact, limits

    def list(
        self, *, status: ReviewStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> Sequence[ReviewRecord]:
        """Reviews, oldest first. A review that nobody answered in time is listed as expired.

        With a `status`, no more than `MOST_READ` or `limit` reviews are read, whichever is more.
        """
        read, most = limit, max(limit, MOST_READ)
        while True:
            stored = self._store.reviews(status=status, session=session, limit=read)
            found = [review for review in map(self._expire_if_due, stored) if status in (None, review.status)]
            if len(found) >= limit or len(stored) < read or read == most:
                return found[:limit]
            read = min(2 * read, most)  # expired reviews must not hide pending ones

    def get(self, review_id: str) -> ReviewRecord | None:
        with self._store.transaction("") as transaction:
            review = transaction.review(review_id)
        return None if review is None else self._expire_if_due(review)

    def _expire_if_due(self, review: ReviewRecord) -> ReviewRecord:
        over = review.status == "pending" and _is_over(review, self._clock())
        return replace(review, status="expired") if over else review

    def approve(
        self,
        review_id: str,
        *,
        by: str,
        uses: int | None = None,
        edited: dict[str, Any] | None = None,
        note: str | None = None,
        version: int | None = None,
    ) -> ReviewRecord:
        """`edited`: `{tool, arguments}` to run instead; it is judged again when it is resumed. `uses`: how often the
        call may run; None means the guard's option `review_uses`. If the rule needs several approvals, the review
        stays pending until the last; an edit takes back the approvals of the call before it. `version`: of the review
        as this person has seen it; after an edit, an approval needs it, or the same `edited`."""
        if uses is not None and (type(uses) is not int or not 1 <= uses <= MOST_USES):
            raise NotAnswered(f"uses={uses!r}: expected a whole number from 1 to {MOST_USES:,}")
        _check_note(note)
        if edited is not None:
            _check_call(edited, self._limits)

        def change(review: ReviewRecord, now: float) -> ReviewRecord:
            changed = self._approve_review(review, by, uses=uses, edited=edited, note=self._redact(note), now=now)
            _check_seen(review, version, edited)
            return changed

        return self._answer(review_id, by, change)

    def reject(self, review_id: str, *, by: str, note: str | None = None) -> ReviewRecord:
        _check_note(note)

        def change(review: ReviewRecord, now: float) -> ReviewRecord:
            return replace(review, status="rejected", note=self._redact(note), decided_by=by, decided_at=now)

        return self._answer(review_id, by, change)

    def wait(self, review_id: str, *, timeout: float, poll: float = 0.05) -> ReviewRecord:
        """The review once it is answered, or after the timeout."""
        until = time.monotonic() + timeout
        while True:
            review = self.get(review_id)
            if review is None:
                raise NotAnswered(f"there is no review `{review_id}`")
            if review.status != "pending" or time.monotonic() >= until:
                return review
            time.sleep(min(poll, max(0.0, until - time.monotonic())))

    def _approve_review(
        self,
        review: ReviewRecord,
        by: str,
        *,
        uses: int | None,
        edited: dict[str, Any] | None,
        note: str | None,
        now: float,
    ) -> ReviewRecord:
        before = review
        if edited is not None:
            bound_to = review.bound_to or review.policy
            digest = action_hash(edited["tool"], edited["arguments"], review.agent, bound_to)
            if digest != review.edited_hash:  # whoever approved before has not seen this call
                review = replace(review, approved_by=())
            review = replace(
                review, edited={name: self._redact(value) for name, value in edited.items()}, edited_hash=digest
            )
        if likeness(by) in map(likeness, review.approved_by):
            raise NotAnswered(f"`{by}` has approved this call already; it needs somebody else")
        if before.needs and not any(_eligible(need, [by]) for need in before.needs):  # it would count for no rule
            named = sorted({name for need in before.needs for name in need["approvers"]})
            raise NotAnswered(f"`{by}` cannot approve this call; these can: {', '.join(named)}")
        if uses is not None:
            review = replace(review, uses_left=min(uses, review.uses_left) if review.approved_by else uses)
        review = replace(review, approved_by=(*review.approved_by, by), note=note or review.note)
        if missing_approvals(review):
            return review
        return replace(review, status="approved", decided_by=", ".join(review.approved_by), decided_at=now)

    def _answer(self, review_id: str, by: str, change: Callable[[ReviewRecord, float], ReviewRecord]) -> ReviewRecord:
        if not _is_person(by):
            raise NotAnswered("an answer needs a name: by=…")
        known = self.get(review_id)
        if known is None:
            raise NotAnswered(f"there is no review `{review_id}`")
        with self._store.transaction(known.session) as transaction:
            review = transaction.review(review_id) or known
            now = self._clock()
            problem = _why_not(review, by, now)
            if problem is None:
                review = change(review, now)
            elif _is_over(review, now) and review.status == "pending":
                review = replace(review, status="expired")
            else:
                raise NotAnswered(problem)
            review = transaction.put_review(review)
            _note(transaction, review, "partly approved" if review.status == "pending" else review.status, now)
        if problem is not None:
            raise NotAnswered(problem)
        return review


def missing_approvals(review: ReviewRecord) -> int:
    """How many people have to approve it yet, at least."""
    if not review.needs:
        return 0 if review.approved_by else 1
    missing: list[int] = [need["approvals"] - len(_eligible(need, review.approved_by)) for need in review.needs]
    return max(0, *missing)


def _eligible(need: dict[str, Any], people: Iterable[str]) -> set[str]:
    """Different people; two whose names look the same count as one."""
    named = {identity(name) for name in need["approvers"]}
    return {likeness(name) for name in people if not named or identity(name) in named}


def _why_not(review: ReviewRecord, by: str, now: float) -> str | None:
    who = likeness(by)
    if who in [likeness(name) for name in (review.asked_by, review.agent) if name is not None]:
        return "the agent that asks cannot answer its own review"
    if who in map(likeness, review.above):
        return "an agent above the one that asks cannot answer its review"
    if review.status != "pending":
        return f"the review is {review.status} already"
    return "the review has expired" if _is_over(review, now) else None
