"""The rows that a guard writes to the event log and the audit chain, in the transaction of the change.

Secrets are removed from everything that is written. A row says where that changed its values (`redacted`), and whether
values could not be written at all (`unwritten`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, TypeAlias

from msgspec.structs import replace

from bylaw.engine.probes import text_blocks
from bylaw.guard.decide.redaction import Place, redacted_paths
from bylaw.guard.json_values import RefusedAttempt, check_json
from bylaw.guard.model import Attempt, Decision, DenialClass, Limits, Match
from bylaw.guard.stores.ports import Transaction
from bylaw.guard.stores.records import EventRow
from bylaw.model.events import (
    Annotation,
    Event,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
)
from bylaw.model.verdict import Verdict
from bylaw.text.redaction.redactor import Redactor

_log = logging.getLogger("bylaw")
_NOTHING: Mapping[str, Any] = {}
_WRITABLE = Limits(bytes=8 << 20, depth=128)
_REFUSED = Limits(bytes=64 << 10)
"""of refused attempts: an agent must not fill the disk with calls that are refused"""
_SHORT = 1000
_UNPRINTABLE = "[cannot be written]"
_FOR_PEOPLE = ("reason", "advice", "matches", "notes", "agent")
"""parts of a decision that may quote a value of the call"""

REDACT = Redactor()
"""the default redaction of a guard"""

RedactedPredicates: TypeAlias = Callable[[list[Place]], dict[str, dict[str, Any]]]
"""predicates on redacted arguments, by rule: their results in `truths`, and their digests in `asked`"""


def write_decision(
    transaction: Transaction,
    attempt: Attempt,
    decision: Decision,
    now: float,
    *,
    about: Mapping[str, Any] = _NOTHING,
    review: str | None = None,
    predicates: RedactedPredicates | None = None,
    redact: Redactor = REDACT,
) -> None:
    """The attempt and its decision. `about`: further keys that a replay needs."""
    limits = _REFUSED if decision.denial is DenialClass.STRUCTURAL else _WRITABLE
    written = _attempt(attempt, now, limits, redact)
    data = {"attempt": written, "decision": decision_row(decision, redact), **about}
    if review is not None:
        data["resumes"] = review
    data |= _redaction_keys(attempt, written, limits, predicates)
    transaction.append_to_both(EventRow(attempt.session, "decision", now, data))


def write_past_call(
    transaction: Transaction,
    attempt: Attempt,
    call_id: str,
    now: float,
    *,
    about: Mapping[str, Any],
    matches: Sequence[Match] | None = None,
    terminated: str | None = None,
    predicates: RedactedPredicates | None = None,
    redact: Redactor = REDACT,
) -> None:
    """A call that was made before. `matches`: what would have stopped it, if it was judged afterwards. `terminated`:
    the rule by which it has ended the session."""
    written = _attempt(attempt, now, _WRITABLE, redact)
    data: dict[str, Any] = {"attempt": written, "call_id": call_id, **about}
    if matches is not None:
        data["matches"] = redact([_match(match) for match in matches])
    if terminated is not None:
        data["terminated"] = terminated
    data |= _redaction_keys(attempt, written, _WRITABLE, predicates)
    transaction.append_to_both(EventRow(attempt.session, "taken", now, data))


def write_result(
    transaction: Transaction,
    result: ToolResult,
    found: Iterable[Verdict],
    *,
    about: Mapping[str, Any] = _NOTHING,
    redact: Redactor = REDACT,
) -> None:
    data = {
        "result_of": result.call_id,
        "content": _plain(result.content, _WRITABLE, redact),
        "is_error": result.is_error,
        "found": _verdicts(found, redact),
        **about,
    }
    if data["content"] != result.content:
        data["redacted"] = True
    transaction.append_to_both(EventRow(result.origin.session, "result", result.time or 0.0, data))


def write_observation(
    transaction: Transaction,
    event: Event,
    found: Iterable[Verdict],
    now: float,
    *,
    about: Mapping[str, Any] = _NOTHING,
    redact: Redactor = REDACT,
) -> None:
    """In the audit chain, the kind of the row is the kind of the event."""
    content = _content(event)
    data = {
        "kind": event.kind,
        "run": event.origin.run,
        "parent_run": event.origin.parent_run,
        "agent": event.origin.agent,
        "turn": event.turn,
        "at": event.time,
        "said": _plain(content, _WRITABLE, redact),
        "found": _verdicts(found, redact),
        **about,
    }
    if data["said"] != content:
        data["redacted"] = True
    transaction.append_to_both(EventRow(event.origin.session, "observation", now, data))


def _content(event: Event) -> dict[str, Any]:
    """The parts of the event that rules can look at. Of the messages of a request, only that there are some."""
    match event:
        case Response():
            calls = [{"name": call.name, "call_id": call.call_id} for call in event.tool_calls]
            content: dict[str, Any] = {
                "text": event.text,
                "stop_reason": event.stop_reason,
                "model": event.model,
                "tool_calls": calls,
            }
            texts = text_blocks(event.content)
            if len(texts) > 1:
                content["blocks"] = texts  # a word may be split over two of them
            return content if event.request is None else {**content, "request": True}
        case Message():
            return {"role": event.role, "content": event.content}
        case Request() if event.messages:
            return {"messages": True}
        case SessionEnd():
            return {"complete": event.complete}
        case _:
            return {}


def recorded_event(data: Mapping[str, Any], session: str, at: float) -> Event | None:
    """The observed event of a row; None if it is not recorded in full. Raises KeyError, TypeError and the like for a
    row that no guard has written."""
    common: dict[str, Any] = {"origin": Origin(session, data["run"], data["parent_run"], data["agent"]), "at": at}
    content = data["said"]
    match data["kind"]:
        case "response":
            calls = tuple(ToolCall(name=one["name"], call_id=one["call_id"], **common) for one in content["tool_calls"])
            request = Request(**common) if content.get("request") else None
            texts = {name: content[name] for name in ("text", "stop_reason", "model")}
            blocks = [{"type": "text", "text": text} for text in content.get("blocks", ())]
            return Response(request=request, tool_calls=calls, content=blocks or None, **texts, **common)
        case "message":
            return Message(role=content["role"], content=content["content"], **common)
        case "request":
            return Request(held_messages=[{}] if content.get("messages") else None, **common)
        case "session_end":
            return SessionEnd(complete=content["complete"], **common)
        case "session_start":
            return SessionStart(**common)
        case "annotation":
            return Annotation(label="", **common)
        case _:
            return None


def write_session_end(
    transaction: Transaction,
    session: str,
    how: str,
    found: Iterable[Verdict],
    now: float,
    why: str | None = None,
    *,
    about: Mapping[str, Any] = _NOTHING,
    redact: Redactor = REDACT,
) -> None:
    data = {"how": how, "why": why, "found": _verdicts(found, redact), **about}
    transaction.append_to_both(EventRow(session, "session", now, data))


def write_switch(transaction: Transaction, agent: str, why: str | None, now: float) -> None:
    data = {"agent": agent, "on": why is not None, "why": why}
    transaction.append_event(EventRow("", "switch", now, data))
    transaction.append_audit(now, {"kind": "switch", **data})


# -- decisions that were made while the store could not be written ----------------------------------------------------


def late_decision(
    attempt: Attempt,
    decision: Decision,
    now: float,
    predicates: RedactedPredicates | None = None,
    redact: Redactor = REDACT,
) -> EventRow:
    """A row that can always be written, with any attempt. A row that cannot be written would make every later
    transaction fail."""
    decision = replace(decision, call_id=text_of(decision.call_id))
    try:
        arguments = _plain(attempt.arguments, _REFUSED, redact)
        names = {"tool": text_of(attempt.tool), "agent": None if attempt.agent is None else text_of(attempt.agent)}
        written = {**redact(names), "ts": now, "arguments": arguments}
        left_out = _redacted_argument_keys(attempt.arguments, arguments, _REFUSED, predicates)
        if not names.items() <= written.items():
            left_out = _redacted_name_keys(left_out)
        data = {"attempt": written, "decision": decision_row(decision, redact), **left_out}
    except Exception:  # a host may put any object into an attempt
        bare = replace(decision, matches=(), reason=_UNPRINTABLE, advice=None, notes=())
        data = {"attempt": {"tool": _UNPRINTABLE, "ts": now}, "decision": _decision(bare), "unwritten": True}
    return EventRow(decision.session, "decision", now, {**data, "late": True})


def write_late_decision(transaction: Transaction, row: EventRow) -> None:
    try:
        transaction.append_to_both(row)
    except (ValueError, TypeError) as problem:  # must not undo the transaction it is part of
        _log.error("a decision in the session `%s` could not be written down: %s", row.session, problem)


def write_dropped(transaction: Transaction, dropped: Mapping[str, int]) -> None:
    """How many `decisions` and other `changes` of sessions will never be written."""
    counts = {name: dropped.get(name, 0) for name in ("decisions", "changes")}
    transaction.append_audit(time.time(), {"kind": "dropped", **counts})


def text_of(value: Any) -> str:
    """`str(value)`, also for an object of the host that cannot be converted."""
    try:
        return str(value)
    except Exception:
        return _UNPRINTABLE


# -- attempts and values as they are written --------------------------------------------------------------------------


def _attempt(attempt: Attempt, now: float, limits: Limits, redact: Redactor) -> dict[str, Any]:
    plain: dict[str, Any] = {"tool": _plain(attempt.tool, limits, redact)}
    ts = now if attempt.ts is None else attempt.ts
    plain["ts"] = ts if type(ts) is float and isfinite(ts) else _plain(ts, limits, redact)
    for name in ("arguments", "agent", "run", "parent_run", "call_id"):
        value = getattr(attempt, name)
        if value is not None:
            plain[name] = _plain(value, limits, redact)
    if attempt.ancestors:
        plain["ancestors"] = _plain(list(attempt.ancestors), limits, redact)
    return plain


def attempt_of(data: Mapping[str, Any], *, session: str, ts: float, call_id: str | None = None) -> Attempt:
    """The attempt of a row. Raises KeyError or TypeError for a row that no guard has written."""
    written = data["attempt"]
    return Attempt(
        tool=written["tool"],
        arguments=written.get("arguments"),
        agent=written.get("agent"),
        session=session,
        run=written.get("run"),
        parent_run=written.get("parent_run"),
        ancestors=tuple(written.get("ancestors", ())),
        ts=ts,
        call_id=call_id,
    )


def _redaction_keys(
    attempt: Attempt, written: dict[str, Any], limits: Limits, predicates: RedactedPredicates | None
) -> dict[str, Any]:
    """The keys of a row that say which parts of the attempt it lacks."""
    if (
        written["tool"] != attempt.tool
        or written.get("agent") != attempt.agent
        or written.get("run") != attempt.run
        or written.get("parent_run") != attempt.parent_run
        or (attempt.ancestors and written["ancestors"] != list(attempt.ancestors))
        or attempt.call_id != written.get("call_id")
    ):
        return _redacted_name_keys(_redacted_argument_keys(attempt.arguments, written.get("arguments"), limits, None))
    return _redacted_argument_keys(attempt.arguments, written.get("arguments"), limits, predicates)


def _redacted_name_keys(arguments_left_out: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the arguments were written is independent of the names."""
    return {"unwritten": True} if arguments_left_out else {"unwritten": True, "arguments_written": True}


def _redacted_argument_keys(
    arguments: Any, written: Any, limits: Limits, predicates: RedactedPredicates | None
) -> dict[str, Any]:
    if written == arguments:
        return {}
    if writable(arguments, limits) is not arguments:
        return {"unwritten": True}
    places = redacted_paths(arguments, written)
    if not places:
        return {}
    found = predicates(places) if predicates is not None else {}
    asked = {"asked": found["asked"]} if found.get("asked") else {}
    return {"redacted": {"arguments": places, "truths": found.get("truths", {})}, **asked}


def writable(value: Any, limits: Limits = _WRITABLE) -> Any:
    """The value if it can be written, else a description of it."""
    if type(value) is str and len(value) <= _SHORT and value.isascii():
        return value
    try:
        check_json(value, limits)
    except RefusedAttempt as why:
        return {"unwritable": type(value).__name__, "why": str(why)}
    return value


def _plain(value: Any, limits: Limits, redact: Redactor) -> Any:
    """The value as it is written, without secrets."""
    return redact(writable(value, limits))


def _verdicts(found: Iterable[Verdict], redact: Redactor) -> list[dict[str, Any]]:
    return [{"rule": v.rule.id, "outcome": v.outcome.value, "message": redact(v.message)} for v in found]


# -- decisions as JSON ------------------------------------------------------------------------------------------------


def decision_row(decision: Decision, redact: Redactor = REDACT) -> dict[str, Any]:
    """The decision as it is written. Only texts for people are redacted: the rest is compared when a verdict is
    recomputed, and the name of a counter may look like a secret."""
    plain = _decision(decision)
    for name in _FOR_PEOPLE:
        if value := plain.get(name):
            plain[name] = redact(value)
    return plain


def decision_json(decision: Decision) -> dict[str, Any]:
    """The documented keys come first; empty ones of the rest are left out."""
    call = None if decision.call is None else {"tool": decision.call.tool, "arguments": decision.call.arguments}
    return _decision(decision, call=call)


def _decision(decision: Decision, **more: Any) -> dict[str, Any]:
    """A row has the call in its attempt, so it does not repeat it."""
    plain: dict[str, Any] = {
        "action": decision.action.value,
        "decided_by": decision.decided_by,
        "matched": list(decision.matched),
        "reason": decision.reason,
        "review": decision.review,
        "policy": decision.policy,
        **more,
    }
    if decision.denial is not None:
        plain["denial"] = decision.denial.value
    if decision.advice:
        plain["advice"] = decision.advice
    if decision.would is not None:
        plain["would"] = decision.would.value
    if decision.matches:
        plain["matches"] = [_match(match) for match in decision.matches]
    for name in ("blind", "counters", "repeats", "notes", "agent", "version", "call_id", "session"):
        if value := getattr(decision, name):
            plain[name] = list(value) if type(value) is tuple else value
    if latency := round(decision.latency_us, 1):
        plain["latency_us"] = latency
    return plain


def _match(match: Match) -> dict[str, Any]:
    plain = {name: getattr(match, name) for name in match.__struct_fields__}
    return {**plain, "then": match.then.value}
