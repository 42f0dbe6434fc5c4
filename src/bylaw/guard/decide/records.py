"""What is written down of everything that happens, in the transaction that it happens in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.attempts import Limits, Refused, check_json
from bylaw.guard.decide.decided import as_json, as_written
from bylaw.guard.decide.hiding import Place, hidden
from bylaw.guard.decision import Attempt, Decision, DenialClass
from bylaw.guard.stores.ports import EventRow, Transaction
from bylaw.model.events import Event, Message, Response, SessionEnd, ToolResult
from bylaw.model.verdict import Verdict
from bylaw.text.redaction.secrets import redacted

_log = logging.getLogger("bylaw")
_NOTHING: Mapping[str, Any] = {}
Truths: TypeAlias = Callable[[list[Place]], dict[str, dict[str, Any]]]
"""what predicates say of arguments in places that are not written down: `truths` by rule, and what was `asked`"""


def decision(
    transaction: Transaction,
    attempt: Attempt,
    decided: Decision,
    now: float,
    *,
    about: Mapping[str, Any] = _NOTHING,
    review: str | None = None,
    truths: Truths | None = None,
) -> None:
    """The attempt and its decision, in the event log and in the audit chain. `about`: what else a replay needs."""
    limits = _REFUSED if decided.denial is DenialClass.STRUCTURAL else _WRITABLE
    told = _attempt(attempt, now, limits)
    data = {"attempt": told, "decision": as_written(decided), **about}
    if review is not None:
        data["resumes"] = review
    data |= _not_written(attempt, told, limits, truths)
    transaction.append_to_both(EventRow(attempt.session, "decision", now, data))


def _not_written(
    attempt: Attempt, told: dict[str, Any], limits: Limits, truths: Truths | None = None
) -> dict[str, Any]:
    """What the row says of what it does not have of the attempt."""
    if (
        told["tool"] != attempt.tool
        or told.get("agent") != attempt.agent
        or told.get("run") != attempt.run
        or told.get("parent_run") != attempt.parent_run
        or (attempt.ancestors and told["ancestors"] != list(attempt.ancestors))
        or attempt.call_id != told.get("call_id")
    ):
        return _names_gone(_taken_out(attempt.arguments, told.get("arguments"), limits, None))
    return _taken_out(attempt.arguments, told.get("arguments"), limits, truths)


def _names_gone(arguments_gone: Mapping[str, Any]) -> dict[str, Any]:
    """A name that is not written says nothing of the arguments."""
    return {"unwritten": True} if arguments_gone else {"unwritten": True, "arguments_written": True}


def _taken_out(arguments: Any, written: Any, limits: Limits, truths: Truths | None) -> dict[str, Any]:
    if written == arguments:
        return {}
    if writable(arguments, limits) is not arguments:
        return {"unwritten": True}
    places = hidden(arguments, written)
    if not places:
        return {}
    said = truths(places) if truths is not None else {}
    asked = {"asked": said["asked"]} if said.get("asked") else {}
    return {"redacted": {"arguments": places, "truths": said.get("truths", {})}, **asked}


def taken(transaction: Transaction, attempt: Attempt, call_id: str, now: float, *, about: Mapping[str, Any]) -> None:
    """A call that was made before, and only counted here."""
    told = _attempt(attempt, now, _WRITABLE)
    data: dict[str, Any] = {"attempt": told, "call_id": call_id, **about}
    data |= _not_written(attempt, told, _WRITABLE)
    transaction.append_to_both(EventRow(attempt.session, "taken", now, data))


class Unwritten(Struct, frozen=True):
    """A decision that was made while nothing could be written."""

    session: str
    at: float
    data: dict[str, Any]


def unwritten(attempt: Attempt, decided: Decision, now: float, truths: Truths | None = None) -> Unwritten:
    """Whatever is wrong with the attempt, this much of it can be written: a row that cannot be would undo every
    transaction that it is written with."""
    decided = replace(decided, call_id=text_of(decided.call_id))
    try:
        data = _late(attempt, decided, now, truths)
    except Exception:  # a host may put anything there
        told = {"tool": _UNTOLD, "ts": now}
        bare = replace(decided, matches=(), reason=_UNTOLD, advice=None, notes=())
        data = {"attempt": told, "decision": as_json(bare), "unwritten": True}
    return Unwritten(decided.session, now, {**data, "late": True})


_UNTOLD = "[cannot be written]"


def text_of(value: Any) -> str:
    """Of what should have been a text. A host's object may refuse to be one."""
    try:
        return str(value)
    except Exception:
        return _UNTOLD


def _late(attempt: Attempt, decided: Decision, now: float, truths: Truths | None) -> dict[str, Any]:
    arguments = _plain(attempt.arguments, _REFUSED)
    agent = None if attempt.agent is None else text_of(attempt.agent)
    names = {"tool": text_of(attempt.tool), "agent": agent}
    told = {**redacted(names), "ts": now, "arguments": arguments}
    gone = _taken_out(attempt.arguments, arguments, _REFUSED, truths)
    if not names.items() <= told.items():
        gone = _names_gone(gone)
    return {"attempt": told, "decision": as_written(decided), **gone}


def write_late(transaction: Transaction, row: Unwritten) -> None:
    try:
        transaction.append_to_both(EventRow(row.session, "decision", row.at, row.data))
    except (ValueError, TypeError) as problem:  # it must not undo what it is written with, nor go unsaid
        _log.error("a decision in the session `%s` could not be written down: %s", row.session, problem)


def result(
    transaction: Transaction, told: ToolResult, found: Iterable[Verdict], *, about: Mapping[str, Any] = _NOTHING
) -> None:
    data = {
        "result_of": told.call_id,
        "content": _plain(told.content),
        "is_error": told.is_error,
        "found": _verdicts(found),
        **about,
    }
    if data["content"] != told.content:
        data["redacted"] = True
    transaction.append_to_both(EventRow(told.origin.session, "result", _time(told), data))


def observation(
    transaction: Transaction,
    event: Event,
    found: Iterable[Verdict],
    now: float,
    *,
    about: Mapping[str, Any] = _NOTHING,
) -> None:
    """In the audit its kind is that of the event."""
    said = _said(event)
    data = {
        "kind": event.kind,
        "run": event.origin.run,
        "parent_run": event.origin.parent_run,
        "agent": event.origin.agent,
        "turn": event.turn,
        "at": event.time,
        "said": _plain(said),
        "found": _verdicts(found),
        **about,
    }
    if data["said"] != said:
        data["redacted"] = True
    transaction.append_to_both(EventRow(event.origin.session, "observation", now, data))


def ended(
    transaction: Transaction,
    session: str,
    how: str,
    found: Iterable[Verdict],
    now: float,
    why: str | None = None,
    *,
    about: Mapping[str, Any] = _NOTHING,
) -> None:
    data = {"how": how, "why": why, "found": _verdicts(found), **about}
    transaction.append_to_both(EventRow(session, "session", now, data))


def run(
    transaction: Transaction,
    session: str,
    name: str,
    agent: str | None,
    parent: str | None,
    now: float,
    *,
    about: Mapping[str, Any] = _NOTHING,
) -> None:
    data = {"run": name, "agent": agent, "parent_run": parent, **about}
    transaction.append_to_both(EventRow(session, "run", now, data))


def _said(event: Event) -> dict[str, Any]:
    """What a rule could ask of it, so that rules can be tried on it later. A request's messages stay with the host."""
    match event:
        case Response():
            calls = [{"name": call.name, "call_id": call.call_id} for call in event.tool_calls]
            said = {"text": event.text, "stop_reason": event.stop_reason, "model": event.model, "tool_calls": calls}
            return said if event.request is None else {**said, "request": True}
        case Message():
            return {"role": event.role, "content": event.content}
        case SessionEnd():
            return {"complete": event.complete}
        case _:
            return {}


def release(
    transaction: Transaction, session: str, call_id: str, now: float, *, about: Mapping[str, Any] = _NOTHING
) -> None:
    transaction.append_to_both(EventRow(session, "release", now, {"call_id": call_id, **about}))


def switch(transaction: Transaction, agent: str, why: str | None, now: float) -> None:
    data = {"agent": agent, "on": why is not None, "why": why}
    transaction.append_event(EventRow("", "switch", now, data))
    transaction.append_audit(now, {"kind": "switch", **data})


def _attempt(attempt: Attempt, now: float, limits: Limits) -> dict[str, Any]:
    plain: dict[str, Any] = {"tool": _plain(attempt.tool, limits)}
    ts = now if attempt.ts is None else attempt.ts
    plain["ts"] = ts if type(ts) is float and isfinite(ts) else _plain(ts, limits)
    for name in ("arguments", "agent", "run", "parent_run", "call_id"):
        value = getattr(attempt, name)
        if value is not None:
            plain[name] = _plain(value, limits)
    if attempt.ancestors:
        plain["ancestors"] = _plain(list(attempt.ancestors), limits)
    return plain


_WRITABLE = Limits(bytes=8 << 20, depth=128)
_SHORT = 1000
_REFUSED = Limits(bytes=64 << 10)
"""of what nobody asked for: an agent must not fill the disk with calls that are refused"""


def writable(value: Any, limits: Limits = _WRITABLE) -> Any:
    """The value where it can be written down; else what it is, never dropped in silence."""
    if type(value) is str and len(value) <= _SHORT and value.isascii():
        return value
    try:
        check_json(value, limits)
    except Refused as why:
        return {"unwritable": type(value).__name__, "why": str(why)}
    return value


def _plain(value: Any, limits: Limits = _WRITABLE) -> Any:
    """What is written down: without secrets."""
    return redacted(writable(value, limits))


def _verdicts(found: Iterable[Verdict]) -> list[dict[str, Any]]:
    return [{"rule": v.rule.id, "outcome": v.outcome.value, "message": redacted(v.message)} for v in found]


def _time(event: Event) -> float:
    return event.time or 0.0
