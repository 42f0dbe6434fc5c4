"""Deletes old rows of a store in memory, and vouches in the chain for what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from msgspec.structs import replace

from bylaw.guard.stores.chain import ANCHOR, PRUNED, vouch
from bylaw.guard.stores.commitments import (
    EVENTS,
    FLOOR,
    FOLLOWED,
    NEW,
    REVIEWS,
    SESSIONS,
    Commitments,
    followed_key,
    ranges,
    session_digest,
    split,
)
from bylaw.guard.stores.encoding import decode, encode
from bylaw.guard.stores.memory_tables import Link, Tables, floor_digest
from bylaw.guard.stores.memory_transaction import MemoryTransaction


def prune(tables: Tables, transaction: MemoryTransaction, *, before: float, now: float) -> dict[str, int]:
    """Reviews before sessions: a session with an open review is not deleted."""
    commitments = transaction.commitments
    counts = {
        "events": _prune_events(tables, before, commitments),
        "reviews": _prune_reviews(tables, before, commitments),
        "sessions": _prune_sessions(tables, before, commitments),
        "followed": _prune_followed(tables, before, commitments),
    }
    if commitments:
        transaction.append_audit(now, PRUNED)
    return {**counts, "audit": _prune_audit(tables, before, transaction, now)}


def _prune_events(tables: Tables, before: float, commitments: Commitments) -> int:
    for key in ranges(row.seq for row in tables.events if row.at < before):
        commitments.put(EVENTS, key, None)
    left = [row for row in tables.events if row.at >= before]
    deleted = len(tables.events) - len(left)
    tables.events = left  # a new list: readers may be iterating over the old one
    return deleted


def _prune_reviews(tables: Tables, before: float, commitments: Commitments) -> int:
    old = [key for key, review in tables.reviews.items() if review.record.can_be_pruned(before=before)]
    for review_id in old:
        commitments.put(REVIEWS, review_id, None, before=tables.reviews.pop(review_id).digest)
    return len(old)


def _prune_sessions(tables: Tables, before: float, commitments: Commitments) -> int:
    busy = {review.record.session for review in tables.reviews.values() if review.record.is_open}
    idle = [r for key, r in tables.sessions.items() if key not in busy and tables.touched[key] < before]
    old = [record for record in idle if record.terminated is None or record.state]
    floor = NEW if tables.floor == 0 else floor_digest(tables)
    for record in old:
        was = session_digest(record)
        if record.terminated is not None:
            left = tables.sessions[record.session] = replace(record, state=b"", version=record.version + 1)
            commitments.put(SESSIONS, record.session, session_digest(left), before=was)
            continue
        del tables.sessions[record.session], tables.touched[record.session]
        tables.floor = max(tables.floor, record.version)
        commitments.put(SESSIONS, record.session, None, before=was)
        commitments.put(FLOOR, "", floor_digest(tables), before=floor)
    return len(old)


def _prune_followed(tables: Tables, before: float, commitments: Commitments) -> int:
    old = [key for key, one in tables.followed.items() if one.record.at < before and not one.record.is_open]
    for key in old:
        one = tables.followed.pop(key)
        commitments.put(FOLLOWED, followed_key(one.record), None, before=one.digest)
    return len(old)


def _prune_audit(tables: Tables, before: float, transaction: MemoryTransaction, now: float) -> int:
    head = list(takewhile(lambda row: row.at < before, tables.audit))
    old = [row for row in head if row.previous]
    if not old:
        return 0
    last, rest = old[-1], tables.audit[len(head) :]
    later = {record for record, _ in _each_said([*rest, *transaction.added_links])}
    for (table, key), digest in dict(_each_said(head)).items():  # what only the links say that are pruned
        if digest is not None and (table, key) not in later:
            transaction.commitments.put(table, key, digest)
    transaction.append_audit(now, vouch(through=last.seq, hash=last.hash))
    tables.audit = [Link(last.seq, last.at, encode(ANCHOR), "", last.hash), *rest]
    return len(old)


def _each_said(links: Iterable[Link]) -> Iterator[tuple[tuple[str, str], str | None]]:
    """What the links say of records, in their order: table and key, digest."""
    for link in links:
        for table, digests in decode(link.stored).items() if link.stored else ():
            if table != EVENTS:
                yield from (((table, key), split(written)[1]) for key, written in digests.items())
