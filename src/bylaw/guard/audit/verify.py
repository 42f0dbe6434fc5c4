"""The chain and the verdicts together, one page of rows in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bylaw.guard.audit.model import AuditFinding, AuditReport, ChainInspector, ChainProblem
from bylaw.guard.audit.policies import by_hash
from bylaw.guard.audit.recompute import Recompute
from bylaw.guard.stores.ports import AuditHead, AuditRow, GuardStore
from bylaw.model.guarding import GuardPolicy

PAGE = 1_000


def verify(
    store: GuardStore,
    files: Sequence[Sequence[GuardPolicy]],
    *,
    inspector: ChainInspector,
    scratch: GuardStore,
    known: Sequence[AuditHead] = (),
    tool_schemas: Mapping[str, Any] | None = None,
    allow_unrecomputed: bool = False,
) -> AuditReport:
    """`files`: the policies of each rule file. `scratch`: an empty store. `known`: heads that were noted elsewhere."""
    report = AuditReport(head=store.audit_head(), known=tuple(known), allow_unrecomputed=allow_unrecomputed)
    recompute = Recompute(report, by_hash(files), store=scratch, tool_schemas=tool_schemas)
    for row in _rows(store, report):
        report.rows += 1
        for problem in inspector.step(row):
            report.add(_finding(problem, row))
        recompute.step(row)
    for problem in inspector.end(report.head):
        report.add(_finding(problem, None))
    return report


def _rows(store: GuardStore, report: AuditReport) -> Iterator[AuditRow]:
    """Every row, also of a chain that grows meanwhile: a row and the head that it makes are written together, so rows
    are missing only where there are none left and the head, read afterwards, lies further on."""
    last = 0
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
