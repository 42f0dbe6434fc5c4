"""Verifies an audit: the hash chain, the tables beside it, and the verdicts, with one page of rows in memory at a
time."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from bylaw.errors import InputError
from bylaw.guard.audit.recompute import OBSERVED, Recompute
from bylaw.guard.audit.report import MOST_FINDINGS, AuditFinding, AuditReport
from bylaw.guard.decide.policy import UNUSABLE, load_content
from bylaw.guard.policies import (
    GuardRules,
    drop_repeated,
    guard_hash,
    load_policies,
    select_version,
    with_mode,
)
from bylaw.guard.stores import ChainCheck, ChainProblem, SqliteStore
from bylaw.guard.stores.chain import COMMITTED, EVENTS, FLOOR, NEW, UNTOUCHED, ChainFault, event_digest, split
from bylaw.guard.stores.encoding import encode
from bylaw.guard.stores.ports import PAGE, GuardStore, StoreUnavailable
from bylaw.guard.stores.records import AuditHead, AuditRow, Digest
from bylaw.model.rule import ExecutionMode, GuardPolicy

_ALONE = frozenset({"anchor", "dropped", "prune", "rules", "stored"})
"""kinds of rows that have no event"""


class TableCheck:
    """The other tables against the chain: each record is the one that the chain vouches for, and none is missing.

    An event has a twin in the chain, and the twins are numbered as the events are. Sessions, reviews, switches, rules
    and records of the follow-up have a digest in the `stored` of the link that was written with them. `step` for each
    row of the chain, then `compare`. What the chain says is held in a temporary file.
    """

    def __init__(self, store: GuardStore) -> None:
        self._store = store
        self._discontinued: list[AuditFinding] = []
        self._twins, self._is_anchored = 0, False
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE held (tab, key, digest, seq, PRIMARY KEY (tab, key)) WITHOUT ROWID")
        self._file.execute("CREATE TABLE twins (number INTEGER PRIMARY KEY, digest, seq, session)")
        self._file.execute("CREATE TABLE pruned (first, last)")

    def step(self, row: AuditRow) -> None:
        kind = row.data.get("kind")
        if kind == "anchor":
            self._is_anchored = True
        if not isinstance(kind, str) or kind not in _ALONE:  # an edited row may hold anything
            self._twins += 1
            twin = (self._twins, twin_digest(row), row.seq, _bytes(str(row.data.get("session", ""))))
            self._file.execute("INSERT INTO twins VALUES (?, ?, ?, ?)", twin)
        if row.stored:
            self._hold(row)

    def _hold(self, row: AuditRow) -> None:
        try:
            found = json.loads(row.stored)
            for key in found.pop(EVENTS, {}):
                self._file.execute("INSERT INTO pruned VALUES (?, ?)", tuple(map(int, key.split("-"))))
            held = [self._held(row, table, key, one) for table, all in found.items() for key, one in all.items()]
        except (ValueError, AttributeError, TypeError):  # the chain reports the edited row
            return
        self._file.executemany("REPLACE INTO held VALUES (?, ?, ?, ?)", held)

    def _held(self, row: AuditRow, table: str, key: str, written: str | None) -> tuple[str, bytes, str | None, int]:
        """A record must match its earlier link in the chain, so that the next write cannot hide an edit."""
        before, after = split(written)
        if before:
            query = "SELECT digest, seq FROM held WHERE tab = ? AND key = ?"
            found = self._file.execute(query, (table, _bytes(key))).fetchone()
            expected, seq = found or (None, 0)
            is_forgotten = found is None and self._is_anchored  # the rows that said something were pruned
            if before == NEW:
                if expected is not None:
                    self._discontinue(
                        _fault(table, key, "dropped", row.seq, f"row {seq} vouches for it, and it was missing")
                    )
            elif expected is None and not is_forgotten:
                self._discontinue(_fault(table, key, "inserted", row.seq, "no row vouches for what was there before"))
            elif expected is not None and not expected.startswith(before):
                message = f"it does not continue what row {seq} vouches for"
                self._discontinue(_fault(table, key, "edited", row.seq, message, expected[:16], before))
        return table, _bytes(key), after, row.seq

    def _discontinue(self, fault: AuditFinding) -> None:
        if len(self._discontinued) <= MOST_FINDINGS:
            self._discontinued.append(fault)

    def compare(self) -> list[AuditFinding]:
        """Every record that is not the one that the chain vouches for, up to one more than a report has."""
        tables = (self._compare(table) for table in COMMITTED)
        found = chain(self._discontinued, chain.from_iterable(tables), self._compare_events())
        return list(islice(found, MOST_FINDINGS + 1))

    def _compare(self, table: str) -> Iterator[AuditFinding]:
        self._file.execute("DROP TABLE IF EXISTS seen")
        self._file.execute("CREATE TEMP TABLE seen (key PRIMARY KEY) WITHOUT ROWID")
        for one in self._records(table):
            is_new = self._file.execute("INSERT OR IGNORE INTO seen VALUES (?)", (_bytes(one.key),)).rowcount
            if not is_new:
                yield _fault(table, one.key, "inserted", 0, "it is there twice", found=one.digest)
                continue
            query = "SELECT digest, seq FROM held WHERE tab = ? AND key = ?"
            expected, seq = self._file.execute(query, (table, _bytes(one.key))).fetchone() or (None, 0)
            if expected is None and not (table == FLOOR and one.digest == UNTOUCHED):
                yield _fault(table, one.key, "inserted", seq, "no row vouches for it", found=one.digest)
            elif expected is not None and one.digest != expected:
                yield _fault(table, one.key, "edited", seq, "it is not what the row vouches for", expected, one.digest)
        query = "SELECT key, digest, seq FROM held WHERE tab = ? AND digest IS NOT NULL AND key NOT IN seen"
        for key, expected, seq in self._file.execute(query, (table,)):
            name = key.decode("utf-8", "surrogatepass")
            yield _fault(table, name, "dropped", seq, "the row vouches for it, and it is missing", expected)
        if table == FLOOR and not self._file.execute("SELECT 1 FROM seen").fetchone():
            yield _fault(table, "", "dropped", 0, "it is missing", UNTOUCHED)

    def _compare_events(self) -> Iterator[AuditFinding]:
        """In a pruned chain, the newest event is the one of the newest twin."""
        before = max(self._store.last_event() - self._twins, 0) if self._is_anchored else 0
        expected_next = before + 1
        for one in self._records(EVENTS):
            yield from self._missing(expected_next, one.number, before)
            expected_next = one.number + 1
            query = "SELECT digest, seq FROM twins WHERE number = ?"
            expected, seq = self._file.execute(query, (one.number - before,)).fetchone() or (None, 0)
            if expected is None:
                yield _fault(EVENTS, one.key, "inserted", seq, "no row of the audit is its twin", found=one.digest)
            elif expected != one.digest:
                yield _fault(
                    EVENTS, one.key, "edited", seq, "it differs from its row in the audit", expected, one.digest
                )
        yield from self._missing(expected_next, before + self._twins + 1, before)

    def _missing(self, first: int, end: int, before: int) -> Iterator[AuditFinding]:
        if first >= end:
            return
        query = "SELECT number, digest, seq FROM twins WHERE number >= ? AND number < ? ORDER BY number"
        for twin, digest, seq in self._file.execute(query, (first - before, end - before)):
            number = twin + before
            if not self._file.execute("SELECT 1 FROM pruned WHERE ? BETWEEN first AND last", (number,)).fetchone():
                yield _fault(EVENTS, str(number), "dropped", seq, "it is missing from the events", digest)

    def _records(self, table: str) -> Iterator[Digest]:
        after = 0
        while found := self._store.digests(table, after=after, limit=PAGE):
            yield from found
            after = found[-1].number


def _fault(
    table: str,
    key: str,
    kind: ChainFault,
    seq: int,
    message: str,
    expected: str | None = None,
    found: str | None = None,
) -> AuditFinding:
    text = f"{table} `{key}`: {message}" if key else f"{table}: {message}"
    return AuditFinding(seq=seq, kind=kind, message=text, expected=expected, found=found, table=table)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def twin_digest(row: AuditRow) -> str:
    """The digest of the event that was written with the row."""
    data = {key: value for key, value in row.data.items() if key != "session"}
    kind = str(data.get("kind", ""))
    if kind in OBSERVED:
        kind = "observation"
    else:
        data.pop("kind", None)
    try:
        return event_digest(str(row.data.get("session", "")), kind, row.at, encode(data))
    except (TypeError, ValueError):
        return ""


# -- the chain and the verdicts ---------------------------------------------------------------------------------------

MOST_VERSIONS = 1_000
"""combinations of the agents' versions that are tried"""
_HEAD = re.compile("([0-9]{1,18}):([0-9a-f]{64})")


def verify_audit(
    store: str | PathLike[str] | GuardStore,
    *rules: GuardRules,
    heads: Sequence[str] = (),
    tool_schemas: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
    allow_unrecomputed: bool = False,
) -> AuditReport:
    """Is the audit intact, and do its verdicts follow from it?

    `rules`: every rule set that was in force, each as for `Guard`. `heads`: earlier values of
    `str(store.audit_head())`, as `SEQ:HASH`. The report's `exit_code` is that of `bylaw guard audit verify`."""
    known = [parse_head(text) for text in heads]
    files = [load_policies(one, inputs=inputs) for one in rules]
    settings: dict[str, Any] = {"tool_schemas": tool_schemas, "allow_unrecomputed": allow_unrecomputed}
    if not isinstance(store, str | PathLike):
        return verify(store, files, known=known, **settings)
    if not Path(store).is_file():
        raise StoreUnavailable(f"there is no store `{store}`")
    opened = SqliteStore(store, read_only=True)
    try:
        return verify(opened, files, known=known, **settings)
    finally:
        opened.close()


def parse_head(text: str) -> AuditHead:
    parts = _HEAD.fullmatch(text.strip())
    if parts is None:
        raise ValueError(f"heads={text!r}: expected `SEQ:HASH`")
    return AuditHead("", int(parts[1]), parts[2])


def verify(
    store: GuardStore,
    files: Sequence[Sequence[GuardPolicy]],
    *,
    known: Sequence[AuditHead] = (),
    tool_schemas: Mapping[str, Any] | None = None,
    allow_unrecomputed: bool = False,
) -> AuditReport:
    """`files`: the policies of each rule file. `known`: heads that were noted outside the store."""
    policies = _policies_by_hash(files)
    with store.snapshot() as view:  # since guards may write meanwhile
        report = AuditReport(head=view.audit_head(), known=tuple(known), allow_unrecomputed=allow_unrecomputed)
        links = ChainCheck(known)
        tables = TableCheck(view)
        recompute = Recompute(report, _stored_policies(view) | policies, tool_schemas=tool_schemas)
        for row in _rows(view):
            report.rows += 1
            for problem in links.step(row):
                report.add(_finding(problem, row))
            recompute.step(row)
            tables.step(row)
        for problem in links.end(report.head):
            report.add(_finding(problem, None))
        for finding in tables.compare():
            report.add(finding)
    return report


def _rows(store: GuardStore) -> Iterator[AuditRow]:
    """Every row. Unlike `audit_rows`, it accepts an anchor in the middle, which `ChainCheck` reports."""
    last = 0
    while rows := store.audit(after=last, limit=PAGE):
        yield from rows
        last = rows[-1].seq


def _finding(problem: ChainProblem, row: AuditRow | None) -> AuditFinding:
    session = None if row is None else row.data.get("session")
    return AuditFinding(
        seq=problem.seq,
        kind=problem.fault,
        message=problem.message,
        expected=problem.expected,
        found=problem.found,
        session=session if isinstance(session, str) else None,
    )


def _stored_policies(store: GuardStore) -> dict[str, list[GuardPolicy]]:
    """The rules in the store whose content has the hash under which they are stored."""
    found: dict[str, list[GuardPolicy]] = {}
    for hash, content in store.rules().items():
        try:
            policies = load_content(content)
            if guard_hash(policies) == hash:
                found[hash] = policies
        except UNUSABLE:
            continue  # the row that vouches for it shows that it was edited
    return found


def _policies_by_hash(files: Sequence[Sequence[GuardPolicy]]) -> dict[str, list[GuardPolicy]]:
    """Each file alone and all together, in every mode and version: a row names the hash of its rules, not the files."""
    together = [policy for file in files for policy in file]
    found: dict[str, list[GuardPolicy]] = {}
    for group in [*files, together] if len(files) > 1 else files:
        for policies in _variants(group):
            found.setdefault(guard_hash(drop_repeated(policies)), list(policies))
    return found


def _variants(policies: Sequence[GuardPolicy]) -> Iterator[list[GuardPolicy]]:
    versions: dict[str, dict[str, None]] = {}
    for policy in policies:
        if policy.version is not None:
            versions.setdefault(policy.agent or "", {})[policy.version] = None
    labels = dict.fromkeys(label for names in versions.values() for label in names)
    choices = (dict(zip(versions, names, strict=True)) for names in product(*versions.values()))
    for version in (None, *labels, *islice(choices, MOST_VERSIONS)):
        for mode in (None, *get_args(ExecutionMode)):
            try:
                yield with_mode(select_version(policies, version), mode)
            except InputError:  # no guard can have been created in this way
                continue
