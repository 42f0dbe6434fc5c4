"""A decision as others read it, and as it is written down."""

from __future__ import annotations

from typing import Any

from bylaw.guard.decision import Decision
from bylaw.text.redaction.secrets import redacted

_SAID = ("reason", "advice", "matches", "notes")


def as_written(decided: Decision) -> dict[str, Any]:
    """What is said for people may name a value that the call was compared by. The rest is compared when a verdict is
    recomputed: a counter may be called like a secret."""
    plain = as_json(decided)
    for name in _SAID:
        if said := plain.get(name):
            plain[name] = redacted(said)
    return plain


def as_json(decided: Decision) -> dict[str, Any]:
    """The keys that others rely on come first; empty ones of the rest are left out."""
    plain: dict[str, Any] = {
        "action": decided.action.value,
        "decided_by": decided.decided_by,
        "matched": list(decided.matched),
        "reason": decided.reason,
        "review": decided.review,
        "policy": decided.policy,
    }
    if decided.denial is not None:
        plain["denial"] = decided.denial.value
    if decided.advice:
        plain["advice"] = decided.advice
    if decided.would is not None:
        plain["would"] = decided.would.value
    if decided.matches:
        plain["matches"] = [_match(match) for match in decided.matches]
    for name in ("blind", "counters", "repeats", "notes", "call_id", "session"):
        if value := getattr(decided, name):
            plain[name] = list(value) if type(value) is tuple else value
    if latency := round(decided.latency_us, 1):
        plain["latency_us"] = latency
    return plain


def _match(match: Any) -> dict[str, Any]:
    plain = {name: getattr(match, name) for name in match.__struct_fields__}
    return {**plain, "then": match.then.value}
