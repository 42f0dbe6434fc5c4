"""The follow-up of a guard's event log, put together: rules, store, webhooks."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bylaw.guard.incidents.correlator import BATCH, Correlator
from bylaw.guard.incidents.courier import Courier, Patience
from bylaw.guard.incidents.loop import Loop
from bylaw.guard.incidents.model import Incident, Recipient
from bylaw.guard.incidents.reminders import Reminders, Reminding
from bylaw.guard.incidents.replay import Replayed
from bylaw.guard.incidents.replay import replay as run
from bylaw.guard.incidents.webhooks import Webhook
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.guarding import GuardPolicy
from bylaw.model.ports import Poster

SECRET = "BYLAW_WEBHOOK_SECRET"


def follower(
    policies: Sequence[GuardPolicy],
    store: GuardStore,
    webhook: str | None = None,
    escalate_to: str | None = None,
    *,
    secret: str | None = None,
    reminding: Reminding | None = None,
    patience: Patience | None = None,
    seconds: float = 10.0,
    poll: float = 1.0,
    batch: int = BATCH,
    clock: Callable[[], float] = time.time,
) -> Loop:
    """`seconds`: how long one delivery may take."""
    key = os.environ.get(SECRET, "") if secret is None else secret
    given: dict[Recipient, str | None] = {"first": webhook, "second": escalate_to}
    posters: dict[Recipient, Poster] = {
        to: Webhook(address, key, seconds=seconds) for to, address in given.items() if address is not None
    }
    return Loop(
        Correlator(policies, store, notify=bool(posters), batch=batch, clock=clock),
        reminders=Reminders(store, reminding or Reminding(), clock=clock) if posters else None,
        courier=Courier(store, posters, patience=patience, clock=clock) if posters else None,
        poll=poll,
    )


def replay(
    policies: Sequence[GuardPolicy],
    store: GuardStore,
    *,
    since: float | None = None,
    write: bool = False,
    each: Callable[[Incident], object] | None = None,
    clock: Callable[[], float] = time.time,
) -> Replayed:
    with tempfile.TemporaryDirectory(prefix="bylaw-replay-") as folder:
        scratch = SqliteStore(Path(folder) / "replay.db")
        try:
            return run(policies, store, scratch=scratch, since=since, write=write, each=each, clock=clock)
        finally:
            scratch.close()
