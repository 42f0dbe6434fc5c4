"""Verifies an audit: the hash chain and the verdicts, with one page of rows in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from bylaw.errors import InputError
from bylaw.guard.audit.recompute import Recompute
from bylaw.guard.audit.report import AuditFinding, AuditReport
from bylaw.guard.audit.tables import TableCheck
from bylaw.guard.decide.rule_changes import UNUSABLE, load_content
from bylaw.guard.policies import (
    GuardRules,
    guard_hash,
    load_policies,
    select_version,
    with_mode,
    without_repeats,
)
from bylaw.guard.stores import ChainCheck, ChainProblem, SqliteStore
from bylaw.guard.stores.ports import PAGE, GuardStore, StoreUnavailable
from bylaw.guard.stores.records import AuditHead, AuditRow
from bylaw.model.guard_policy import ExecutionMode, GuardPolicy

MOST_READINGS = 10
"""of the tables, while a guard writes them"""
MOST_VERSIONS = 1_000
"""combinations of the agents' versions that are tried"""


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
    known = [_head(text) for text in heads]
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


def _head(text: str) -> AuditHead:
    seq, _, hash = text.partition(":")
    if not (seq.isascii() and seq.isdigit() and hash):
        raise ValueError(f"heads={text!r}: expected `SEQ:HASH`")
    return AuditHead("", int(seq), hash)


def verify(
    store: GuardStore,
    files: Sequence[Sequence[GuardPolicy]],
    *,
    known: Sequence[AuditHead] = (),
    tool_schemas: Mapping[str, Any] | None = None,
    allow_unrecomputed: bool = False,
) -> AuditReport:
    """`files`: the policies of each rule file. `known`: heads that were noted outside the store."""
    report = AuditReport(head=store.audit_head(), known=tuple(known), allow_unrecomputed=allow_unrecomputed)
    chain = ChainCheck(known)
    tables = TableCheck(store)
    recompute = Recompute(report, _stored_policies(store) | _policies_by_hash(files), tool_schemas=tool_schemas)
    last = 0
    for _ in range(MOST_READINGS):
        for row in _rows(store, report, last):
            report.rows += 1
            for problem in chain.step(row):
                report.add(_finding(problem, row))
            recompute.step(row)
            tables.step(row)
            last = row.seq
        differing = tables.compare()
        if not differing or store.audit_head().seq == report.head.seq:
            break  # else the tables may be ahead of the rows that were read
    for problem in chain.end(report.head):
        report.add(_finding(problem, None))
    for finding in differing:
        report.add(finding)
    return report


def _rows(store: GuardStore, report: AuditReport, last: int) -> Iterator[AuditRow]:
    """Every row after `last`, even if the chain grows meanwhile. A row and its head are committed together, so rows are
    missing only if none are left and the head, read afterwards, is further on."""
    while True:
        rows = store.audit(after=last, limit=PAGE)
        yield from rows
        if rows:
            last = rows[-1].seq
            continue
        report.head = store.audit_head()
        if report.head.seq <= last or not store.audit(after=last, limit=1):
            return


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
            found.setdefault(guard_hash(without_repeats(policies)), list(policies))
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
