"""The whole log once more, apart from what was followed live: what incidents do these rules give?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.incidents import paging
from bylaw.guard.incidents.correlator import Correlator, Step
from bylaw.guard.incidents.model import Detection, Incident
from bylaw.guard.incidents.raising import Raising
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.guarding import GuardPolicy

PAGE = 500
BATCH = 5_000
"""larger than live: nobody waits for the scratch store"""


class Replayed(Struct):
    events: int
    count: int = 0
    """of incidents"""
    incidents: list[Incident] = []
    """in the order in which they were found; empty where somebody took them one by one"""
    unjudged: dict[str, int] = {}
    """rule → how often it could not be judged, since what it looks at is not written down"""
    unreadable: int = 0
    """events that are not as a guard writes them"""
    written: int = 0
    """detections that the store did not have"""


def replay(
    policies: Sequence[GuardPolicy],
    store: GuardStore,
    *,
    scratch: GuardStore,
    since: float | None = None,
    write: bool = False,
    notify: bool = False,
    each: Callable[[Incident], object] | None = None,
    batch: int = BATCH,
    clock: Callable[[], float] = time.time,
) -> Replayed:
    """`scratch`: an empty store for what is remembered on the way. `since`: only incidents last seen then or later;
    the rules still remember what came before. `write`: what the store does not have yet is raised there. `each`: takes
    the incidents one by one, in place of the list, so that there may be any number of them."""
    replayed = Replayed(0)

    def noted(step: Step) -> None:
        replayed.unreadable += len(step.unreadable)

    correlator = Correlator(policies, store, target=scratch, write_each=False, batch=batch, behind=1, clock=clock)
    done = correlator.catch_up(each=noted)
    replayed.events, replayed.unjudged = done.events, done.unjudged
    if write:
        pages = paging.pages(scratch, Detection, size=PAGE)
        replayed.written = sum(_raise(store, page, since, notify=notify, now=clock()) for page in pages)
    for incident in paging.each(scratch, Incident):
        if incident.count and (since is None or incident.last_seen >= since):
            replayed.count += 1
            (each or replayed.incidents.append)(incident)
    return replayed


def _raise(store: GuardStore, page: Sequence[Detection], since: float | None, *, notify: bool, now: float) -> int:
    with store.transaction("") as transaction:
        raising = Raising(transaction, now=now, notify=notify)
        for one in page:
            if since is None or one.when >= since:
                raising.add(replace(one, version=0, incident=""))
        raising.finish()
        return raising.raised.detections
