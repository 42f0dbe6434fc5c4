"""The reviews that people answered, as the rows tell. A replay asks here in place of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from bylaw.guard.decide.attempts import action_hash
from bylaw.guard.stores.ports import EventRow, ReviewRecord

MOST_REVIEWS = 100_000
"""that are open at once; the oldest is forgotten"""


class Book:
    """What `jobs.guard.reviews` needs of a transaction."""

    def __init__(self) -> None:
        self._reviews: dict[str, ReviewRecord] = {}

    def tell(self, data: Mapping[str, Any]) -> None:
        """A row about a review. That it was spent is not taken from the row, but found again."""
        id, what = data["review"], data["what"]
        known = self._reviews.get(id)
        if what == "opened":
            self._reviews[id] = ReviewRecord(
                id=id, session=data["session"], tool=data["tool"], action_hash="", policy="", created_at=0.0
            )
            if len(self._reviews) > MOST_REVIEWS:
                del self._reviews[next(iter(self._reviews))]
        elif known is not None and what == "approved":
            edited = data["edited"]
            digest = None if edited is None else _edited_hash(known, edited)
            self._reviews[id] = replace(
                known, status="approved", uses_left=data["uses"], edited=edited, edited_hash=digest
            )
        elif what in ("rejected", "expired"):
            self._reviews.pop(id, None)

    def paused(self, id: str, *, tool: str, arguments: Any, agent: str | None, policy: str) -> None:
        """The call that the review is about."""
        known = self._reviews.get(id)
        if known is not None and not known.action_hash:
            digest = action_hash(tool, arguments, agent, policy)
            self._reviews[id] = replace(known, action_hash=digest, agent=agent, policy=policy)

    def review(self, review_id: str) -> ReviewRecord | None:
        return self._reviews.get(review_id)

    def find_review(self, session: str, action_hash: str) -> ReviewRecord | None:
        return None  # the rows tell which one it was

    def put_review(self, record: ReviewRecord) -> ReviewRecord:
        if record.id in self._reviews:
            self._reviews[record.id] = record
            if record.status == "used":
                del self._reviews[record.id]
        return record

    def append_to_both(self, row: EventRow) -> int:
        return 0


def _edited_hash(review: ReviewRecord, edited: Mapping[str, Any]) -> str:
    return action_hash(edited["tool"], edited["arguments"], review.agent, review.policy)
