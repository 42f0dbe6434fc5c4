"""What the tests of every store share: a clock that stands still, short ways to write, and what other processes do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import AuditRow, EventRow, ReviewRecord
from tests.support.processes import worker_context

Opener = Callable[[], GuardStore]
"""opens the store anew, also in another process: it can be pickled"""


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def write(store: GuardStore, session: str, state: bytes = b"state", *, terminated: str | None = None) -> int:
    """Write a session; its version."""
    with store.transaction(session) as transaction:
        record = transaction.session(session)
        record.state, record.terminated, record.version = state, terminated, record.version + 1
        transaction.put_session(record)
    return record.version


def read(store: GuardStore, session: str) -> bytes:
    with store.transaction(session) as transaction:
        return transaction.session(session).state


def note(store: GuardStore, session: str, at: float, **data: Any) -> int:
    """One event and one audit row; the event's number."""
    with store.transaction(session) as transaction:
        transaction.append_audit(at, data)
        return transaction.append_event(EventRow(session, "note", at, data))


def review(review_id: str, **fields: Any) -> ReviewRecord:
    given: dict[str, Any] = {"session": "s", "tool": "refund", "action_hash": "h", "policy": "p", "created_at": 1000.0}
    return ReviewRecord(id=review_id, **(given | fields))


def count_up(store: GuardStore, session: str, times: int, *, name: str = "") -> None:
    """Add `times` to the number that the session's state is, with an event and an audit row each time."""
    for _ in range(times):
        with store.transaction(session) as transaction:
            record = transaction.session(session)
            count = int(record.state or b"0") + 1
            record.state, record.version = b"%d" % count, record.version + 1
            transaction.put_session(record)
            transaction.append_event(EventRow(session, "count", float(count), {"count": count, "by": name}))
            transaction.append_audit(float(count), {"count": count, "by": name})


def in_processes(work: Callable[..., None], arguments: list[tuple[Any, ...]], *, seconds: float = 300) -> None:
    """Run each in a process of its own, at once; all must end well."""
    context = worker_context()
    processes = [context.Process(target=work, args=given) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(seconds)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def open_and_count_up(opener: Opener, session: str, times: int, name: str) -> None:
    store = opener()
    count_up(store, session, times, name=name)
    store.close()


def own_rows(store: GuardStore) -> list[AuditRow]:
    """The rows of the audit but those that only vouch for other tables."""
    return [row for row in store.audit() if row.data.get("kind") not in ("stored", "prune")]
