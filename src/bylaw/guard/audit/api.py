"""The audit of a guard's store, verified. Apart from the other jobs, which need none of this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from bylaw.guard.api import GuardRules, policies_of
from bylaw.guard.audit.model import AuditReport
from bylaw.guard.audit.verify import verify
from bylaw.guard.stores import ChainCheck, MemoryStore, SqliteStore
from bylaw.guard.stores.ports import AuditHead, GuardStore, StoreUnavailable


def verify_audit(
    store: str | PathLike[str] | GuardStore,
    *rules: GuardRules,
    heads: Sequence[str] = (),
    tool_schemas: Mapping[str, Any] | None = None,
    allow_unrecomputed: bool = False,
) -> AuditReport:
    """Is the audit as it was written, and do its verdicts follow from it?

    `rules`: every rule set that was in force, each as for `Guard`. `heads`: `SEQ:HASH`, as `str(store.audit_head())`
    was earlier. The report's `exit_code` is what `bylaw guard audit verify` would exit with.
    """
    known = [_head(text) for text in heads]
    files = [policies_of(one) for one in rules]
    is_path = isinstance(store, str | PathLike)
    if is_path and not Path(store).is_file():  # type: ignore[arg-type]
        raise StoreUnavailable(f"there is no store `{store}`")
    kept: GuardStore = SqliteStore(store) if isinstance(store, str | PathLike) else store
    try:
        return verify(
            kept,
            files,
            inspector=ChainCheck(known),
            scratch=MemoryStore(),
            known=known,
            tool_schemas=tool_schemas,
            allow_unrecomputed=allow_unrecomputed,
        )
    finally:
        if is_path:
            kept.close()


def _head(text: str) -> AuditHead:
    seq, _, hash = text.partition(":")
    if not (seq.isascii() and seq.isdigit() and hash):
        raise ValueError(f"heads={text!r}: expected `SEQ:HASH`")
    return AuditHead("", int(seq), hash)
