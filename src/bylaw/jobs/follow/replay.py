"""The whole log once more, apart from what was followed live: what incidents do these rules give?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.jobs.follow.correlator import Correlator
from bylaw.jobs.follow.raising import Raising
from bylaw.model.guarding import GuardPolicy
from bylaw.model.incidents import Detection, Incident
from bylaw.model.stores import GuardStore, R

PAGE = 500
BATCH = 5_000
"""larger than live: nobody waits for the scratch store, and what a session remembers is written less often"""


class Replayed(Struct):
    events: int
    incidents: list[Incident]
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
    batch: int = BATCH,
    clock: Callable[[], float] = time.time,
) -> Replayed:
    """`scratch`: an empty store for what is remembered on the way. `since`: only incidents last seen then or later;
    the rules still remember what came before. `write`: what the store does not have yet is raised there."""
    done = Correlator(policies, store, target=scratch, batch=batch, clock=clock).catch_up()
    found = (one for page in _pages(scratch, Incident) for one in page)
    listed = [one for one in found if one.count and (since is None or one.last_seen >= since)]
    replayed = Replayed(done.events, sorted(listed, key=lambda one: (one.first_seen, one.id)))
    if write:
        wanted = {one.id for one in replayed.incidents}
        replayed.written = sum(
            _raise(store, page, wanted, since, notify=notify, now=clock()) for page in _pages(scratch, Detection)
        )
    return replayed


def _raise(
    store: GuardStore,
    page: Sequence[Detection],
    wanted: set[str],
    since: float | None,
    *,
    notify: bool,
    now: float,
) -> int:
    with store.transaction("") as transaction:
        raising = Raising(transaction, now=now, notify=notify)
        for one in page:
            if one.incident in wanted and (since is None or one.when >= since):
                raising.add(replace(one, version=0, incident=""))
        return raising.raised.detections


def _pages(store: GuardStore, kind: type[R]) -> Iterator[Sequence[R]]:
    skip = 0
    while page := store.followed(kind, skip=skip, limit=PAGE):
        yield page
        skip += len(page)
