"""A finding as it is kept. Its id is made of the rule, the session and the deciding event: it is never there twice."""

from __future__ import annotations

import hashlib
import json

from bylaw.guard.incidents.fold import Found
from bylaw.guard.incidents.model import Detection
from bylaw.guard.incidents.recorded import digest, time_of
from bylaw.text.redaction.secrets import redacted

LONGEST = 2_000
"""characters of a message that are kept"""


def detection(found: Found) -> Detection:
    row, call, guarded = found.row, found.call, found.guarded
    event, span = digest(row), guarded.rule.span
    return Detection(
        id=f"detection-{short_hash(found.rule, row.session, event)}",
        session=row.session,
        rule=found.rule,
        event=event,
        seq=row.seq,
        when=time_of(row),
        message=redacted(guarded.reason or found.message)[:LONGEST],
        then=guarded.then.value,
        severity=guarded.rule.severity,
        stopped=found.stopped,
        certain=found.certain,
        line=None if span is None else str(span),
        tool=None if call is None else call.name,
        call_id=None if call is None else call.call_id,
        run=None if call is None else call.origin.run,
        agent=None if call is None else call.origin.agent,
    )


def short_hash(*parts: str | int) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
