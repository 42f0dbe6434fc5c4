"""`python -m tests.stores.hammer FILE NAME`: write as fast as possible until killed, and tell what was committed.

A transaction counts up two sessions, the writer's own and one that all share, with an event and an audit row each.
After its commit, and not before, its number goes to standard output, in one write of eight bytes.
"""

from __future__ import annotations

import os
import sys

from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import Transaction
from bylaw.guard.stores.records import EventRow

SHARED = "shared"
ACKNOWLEDGED = 8


def main(path: str, name: str) -> None:
    store = SqliteStore(path, busy_timeout=300)
    while True:
        with store.transaction(name) as transaction:
            count = count_up(transaction, name, name)
            count_up(transaction, SHARED, name)
        os.write(1, count.to_bytes(ACKNOWLEDGED, "big"))


def count_up(transaction: Transaction, session: str, name: str) -> int:
    record = transaction.session(session)
    count = int(record.state[:20] or b"0") + 1
    record.state, record.version = b"%-20d" % count + bytes(count % 20_000), record.version + 1
    transaction.put_session(record)
    transaction.append_event(EventRow(session, "count", float(count), {"by": name, "count": count}))
    transaction.append_audit(float(count), {"session": session, "by": name, "count": count})
    return count


if __name__ == "__main__":
    main(*sys.argv[1:])
