"""Reviews of a service, as a client sees them: whether a person has answered. Answers are for people, who have keys of
their own: the key of an agent cannot approve what the agent asks for."""

from __future__ import annotations

import time
from typing import Any, NoReturn

from bylaw.guard.reviews import NotAnswered
from bylaw.guard.service.api.shapes import ReviewAnswer
from bylaw.guard.service.client_link import Link, ServiceRefused, Unreachable

_WAIT = 25.0
"""seconds of one request that waits"""
_AWAY = 1.0
"""seconds until a service that is away is asked again"""


class RemoteReviews:
    """The part of `Guard.reviews` that agents need."""

    poll = 1.0
    """seconds between two looks at a review"""

    def __init__(self, link: Link) -> None:
        self._link = link

    def get(self, review_id: str) -> ReviewAnswer | None:
        """The answer; None if there is no such review. While the service is away, nobody has answered."""
        return self._ask(review_id, 0.0)

    def wait(self, review_id: str, *, timeout: float) -> ReviewAnswer:
        """The answer, or after the timeout that there is none. Raises NotAnswered if there is no such review."""
        until = time.monotonic() + timeout
        while True:
            answer = self._ask(review_id, min(_WAIT, max(0.0, until - time.monotonic())))
            if answer is None:
                raise NotAnswered(f"there is no review `{review_id}`")
            left = until - time.monotonic()
            if answer.status != "pending" or left <= 0:
                return answer
            time.sleep(min(_AWAY, left))  # the service has answered early, or is away

    def list(self, **_: Any) -> list[Any]:
        """None: an agent does not see what others are asked."""
        return []

    def _ask(self, review_id: str, seconds: float) -> ReviewAnswer | None:
        try:
            return self._link.wait(review_id, seconds)
        except Unreachable:
            return ReviewAnswer(review=review_id, status="pending")
        except ServiceRefused as problem:
            if problem.status != 404:
                raise
            return None

    def _for_people(self, *_: Any, **__: Any) -> NoReturn:
        raise NotAnswered("a review of the service is answered by a person there: in the console, or by the JSON API")

    approve = reject = _for_people
