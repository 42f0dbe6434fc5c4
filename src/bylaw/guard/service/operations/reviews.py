"""Reviews: the data that a person needs to answer one, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.guard import Guard
from bylaw.guard.reviews import NotAnswered, missing_approvals
from bylaw.guard.service.errors import Conflict, Forbidden, NotFound
from bylaw.guard.service.operations.record import DecisionView, decision_view, newest_events, read_said
from bylaw.guard.service.rule_versions import RuleView, rule_views
from bylaw.guard.stores.ports import StoreConflict
from bylaw.guard.stores.records import Claim, EventRow, ReviewRecord, ReviewStatus

CLAIM_SECONDS = 120.0
"""how long the claim of a person on a review lasts"""
MOST_EVENTS = 2_000
"""events of the session that are read for its context"""


class ChangedArgument(Struct, frozen=True, kw_only=True):
    """One value that differs from the last call of the same tool."""

    path: str
    before: Any = None
    after: Any = None
    what: str
    """`added`, `removed` or `changed`"""


class SimilarCall(Struct, frozen=True, kw_only=True):
    """The last call of the same tool before this one, in this session or else in any."""

    decision: DecisionView
    changes: list[ChangedArgument]


class Said(Struct, frozen=True, kw_only=True):
    """One observation of the conversation."""

    seq: int
    at: float
    kind: str
    role: str
    text: Any = None


class ReviewView(Struct, frozen=True, kw_only=True):
    """A review with everything around it."""

    review: ReviewRecord
    missing: int
    """approvals that it still needs"""
    rules: list[RuleView]
    """those that paused it, as far as they are still in force"""
    similar: SimilarCall | None
    conversation: list[Said]
    calls: list[DecisionView]
    """of the session so far, the oldest first"""
    claimed_by: str | None = None
    """who else has opened it within the last two minutes"""
    claimed_at: float | None = None


class ReviewOperations:
    def __init__(self, guard: Guard, clock: Callable[[], float]) -> None:
        self._guard, self._store, self._clock = guard, guard.store, clock

    def list(
        self,
        *,
        status: ReviewStatus | None = None,
        session: str | None = None,
        agent: str | None = None,
        limit: int = 100,
    ) -> Sequence[ReviewRecord]:
        """Oldest first."""
        found = self._guard.reviews.list(status=status, session=session, limit=10 * limit if agent else limit)
        return [one for one in found if agent in (None, one.agent)][:limit]

    def get(self, review_id: str) -> ReviewRecord:
        found = self._guard.reviews.get(review_id)
        if found is None:
            raise NotFound(f"there is no review `{review_id}`")
        return found

    def view(self, review_id: str, *, by: str | None = None) -> ReviewView:
        """`by`: the person who reads it; the claim of another person is shown."""
        review = self.get(review_id)
        rows = self._store.events(session=review.session, limit=MOST_EVENTS)
        calls = [view for view in map(decision_view, rows) if view is not None]
        claim = self._claim(review_id)
        claim = None if claim is None or claim.by == by else claim
        return ReviewView(
            review=review,
            missing=missing_approvals(review),
            rules=[one for one in rule_views(self._guard) if one.id in review.rules],
            similar=self._similar(review, calls),
            conversation=[said for said in map(_read_observation, rows) if said is not None],
            calls=calls,
            claimed_by=None if claim is None else claim.by,
            claimed_at=None if claim is None else claim.at,
        )

    def claim(self, review_id: str, *, by: str) -> Claim:
        """Claim the review for this person. Raises Conflict if another person has claimed it."""
        self.get(review_id)
        known = self._claim(review_id)
        if known is not None and known.by != by:
            raise Conflict(f"`{known.by}` is looking at this review", by=known.by)
        try:
            with self._store.transaction("") as transaction:
                stored = transaction.followed(Claim, review_id) or Claim(id=review_id, session=review_id, by=by)
                return transaction.put_followed(replace(stored, by=by, at=self._clock()))
        except StoreConflict:
            raise Conflict("somebody else has just opened this review") from None

    def _claim(self, review_id: str) -> Claim | None:
        found = self._store.followed(Claim, session=review_id, limit=1)
        return found[0] if found and self._clock() - found[0].at < CLAIM_SECONDS else None

    def approve(
        self,
        review_id: str,
        *,
        by: str,
        note: str | None = None,
        uses: int | None = None,
        edited: dict[str, Any] | None = None,
        version: int | None = None,
    ) -> ReviewRecord:
        """`edited`: `{tool, arguments}` to run instead. `version`: of the review as the person has seen it; raises
        Conflict if it has changed since, or if it is missing though somebody has edited the call."""
        given: dict[str, Any] = {"note": note, "uses": uses, "edited": edited, "version": version}
        return self._answer(lambda: self._guard.reviews.approve(review_id, by=by, **given), review_id, version)

    def reject(self, review_id: str, *, by: str, note: str | None = None, version: int | None = None) -> ReviewRecord:
        return self._answer(lambda: self._guard.reviews.reject(review_id, by=by, note=note), review_id, version)

    def _answer(self, answer: Callable[[], ReviewRecord], review_id: str, version: int | None) -> ReviewRecord:
        review = self.get(review_id)
        if version is not None and review.version != version:
            raise Conflict("the review has changed since you have seen it", version=review.version)
        try:
            return answer()
        except StoreConflict:
            raise Conflict("somebody else has answered at the same moment") from None
        except NotAnswered as why:
            if "cannot answer" in str(why) or "cannot approve" in str(why):
                raise Forbidden(str(why)) from None
            raise Conflict(str(why), review=review_id) from None

    def _similar(self, review: ReviewRecord, calls: Sequence[DecisionView]) -> SimilarCall | None:
        """Calls after the one that paused are no comparison: the person asks what is new about this one."""
        own = next((one.seq for one in calls if one.review == review.id), None)
        earlier = [one for one in calls if own is None or one.seq < own]
        last = next((one for one in reversed(earlier) if _is_similar(one, review)), None)
        if last is None:
            recent = map(decision_view, newest_events(self._store, before=own, most=MOST_EVENTS))
            last = next((one for one in recent if one is not None and _is_similar(one, review)), None)
        if last is None:
            return None
        return SimilarCall(decision=last, changes=changed_arguments(last.arguments, review.arguments))


def _is_similar(one: DecisionView, review: ReviewRecord) -> bool:
    return one.tool == review.tool and one.agent == review.agent and one.review != review.id


def changed_arguments(before: Any, after: Any, path: str = "") -> list[ChangedArgument]:
    """The values that differ, by their paths."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[ChangedArgument] = []
        for key in {**before, **after}:
            place = f"{path}.{key}" if path else str(key)
            if key not in before:
                found.append(ChangedArgument(path=place, after=after[key], what="added"))
            elif key not in after:
                found.append(ChangedArgument(path=place, before=before[key], what="removed"))
            else:
                found += changed_arguments(before[key], after[key], place)
        return found
    if before == after:
        return []
    return [ChangedArgument(path=path, before=before, after=after, what="changed")]


def _read_observation(row: EventRow) -> Said | None:
    data = row.data
    observation = data.get("said")
    if row.kind != "observation" or not isinstance(observation, dict):
        return None
    kind = str(data.get("kind"))
    role, text = read_said(kind, observation)
    return Said(seq=row.seq, at=row.at, kind=kind, role=role, text=text)
