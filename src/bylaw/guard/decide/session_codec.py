"""Encodes and decodes the state of a session. Secrets are removed from the calls in it, as from every record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.engine.evaluation import Evaluation
from bylaw.engine.scope import Undo, dumped_undo, revived_undo
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import Logged, PolicyState, SessionState
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.events import Event, Message, Origin, ToolCall, ToolResult
from bylaw.text.redaction.redactor import redacted

FORM = 1
"""version of the encoding; another version is refused"""
MOST_OTHERS = 32
"""policies of other guards whose state is stored again"""


class PolicyData(Struct, array_like=True):
    attempts: Raw
    calls: Raw
    log: list[tuple[Raw, bool]] = []
    """an event, or the id of an open call; and whether it is settled"""
    undo: list[Raw] = []
    """what takes back the whole log; nothing in a state of an earlier version, whose log has [event, undo record]"""


class _Data(Struct, omit_defaults=True):
    form: int
    policies: dict[str, PolicyData] = {}
    fed: list[str] = []
    runs: dict[str, tuple[str | None, str | None]] = {}
    denied: dict[str, int] = {}
    open: list[Raw] = []
    above: dict[str, tuple[str, ...]] = {}
    turn: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Data).decode
_decode_logged = msgspec.json.Decoder(tuple[list[Any], Undo]).decode
_decode_undo = msgspec.json.Decoder(Undo).decode
_decode_event = msgspec.json.Decoder(list[Any]).decode
_decode_entry = msgspec.json.Decoder(list[Any] | str).decode


def dump(state: SessionState) -> bytes:
    calls = _dump_open(state)
    return _encode(
        _Data(
            form=FORM,
            policies=state.others | {key: _dump_policy(policy, state) for key, policy in state.policies.items()},
            fed=sorted(state.fed),
            runs=state.runs,
            denied=state.denied,
            above=state.above,
            open=calls,
            turn=state.turn,
        )
    )


def _dump_open(state: SessionState) -> list[Raw]:
    """A call that was encoded before is not searched for secrets again."""
    known, texts = state.written, {}
    for call_id, call in state.open.items():
        written = known.get(call_id)
        texts[call_id] = written if written is not None and written[0] is call else (call, Raw(_encode(_event(call))))
    state.written = texts
    return [text for _, text in texts.values()]


def _dump_policy(state: PolicyState, session: SessionState) -> PolicyData:
    log = [(_dump_logged(one, session), one.settled) for one in state.log]
    undo = [_dump_undo(state)] if log else []
    return PolicyData(Raw(state.attempts.snapshot()), Raw(state.calls.snapshot()), log, undo)


def _dump_undo(state: PolicyState) -> Raw:
    undo, known = state.undo, state.undo_text
    if known is None or known[0] is not undo:
        known = state.undo_text = undo, Raw(_encode(dumped_undo(state.policy.calls, undo)))
    return known[1]


def _dump_logged(logged: Logged, session: SessionState) -> Raw:
    event = logged.event
    if isinstance(event, ToolCall) and session.open.get(event.call_id) is event:
        return Raw(_encode(event.call_id))
    if logged.text is None:
        logged.text = Raw(_encode(_event(event)))
    return logged.text


def load(key: str, data: bytes, policies: Sequence[CompiledPolicy]) -> SessionState:
    """Raises StoreUnavailable for a state that another version of bylaw has written."""
    state = SessionState(key)
    if not data:
        return state
    found = _read(key, data)
    known = {policy.hash: policy for policy in policies}
    calls = [_revive(_decode_event(text), key) for text in found.open]
    state.open = {call.call_id: call for call in calls if isinstance(call, ToolCall)}
    for hash, saved in found.policies.items():
        if hash in known:
            state.policies[hash] = _load_policy(known[hash], saved, state)
    others = [hash for hash in found.policies if hash not in known]
    state.others = {hash: found.policies[hash] for hash in others[-MOST_OTHERS:]}
    for saved in state.others.values():
        saved.log = [(_whole(text, found.open, calls), settled) for text, settled in saved.log]
    state.above = found.above
    state.fed = frozenset(found.fed)
    state.runs, state.denied = found.runs, found.denied
    state.turn = found.turn
    return state


def _read(key: str, data: bytes) -> _Data:
    try:
        found = _decode(data)
        if found.form == FORM:
            return found
    except msgspec.ValidationError:
        pass
    raise StoreUnavailable(f"the session `{key}` was written by another version of bylaw")


def _load_policy(policy: CompiledPolicy, saved: PolicyData, session: SessionState) -> PolicyState:
    state = PolicyState(policy)
    state.attempts = Evaluation.restore(policy.attempts, bytes(saved.attempts))
    state.calls = Evaluation.restore(policy.calls, bytes(saved.calls))
    if not saved.undo:
        for text, settled in saved.log:
            event, undo = _decode_logged(text)
            state.log.append(Logged(_revive(event, session.key), revived_undo(policy.calls, undo), settled))
    else:
        log = [_load_logged(text, settled, session) for text, settled in saved.log]
        state.read_log(log, revived_undo(policy.calls, _decode_undo(saved.undo[0])))
    return state


def _whole(text: Raw, opened: list[Raw], calls: list[Event]) -> Raw:
    """The event itself: the call may be closed before this policy is read again."""
    if not bytes(text).startswith(b'"'):
        return text
    call_id = _decode_entry(text)
    return next(raw for raw, call in zip(opened, calls, strict=True) if getattr(call, "call_id", None) == call_id)


def _load_logged(text: Raw, settled: bool, session: SessionState) -> Logged:
    entry = _decode_entry(text)
    if isinstance(entry, str):
        return Logged(session.open[entry], None, settled)
    return Logged(_revive(entry, session.key), None, settled, text.copy())


def _event(event: Event) -> list[Any]:
    origin = event.origin
    who = [origin.run, origin.parent_run, origin.agent]
    if isinstance(event, ToolCall):
        return ["call", who, event.turn, event.at, event.name, event.call_id, redacted(event.arguments)]
    if isinstance(event, Message):
        return ["message", who, event.turn, event.at, event.role, None, redacted(event.content)]
    assert isinstance(event, ToolResult)
    call = None if event.call is None else _event(event.call)
    content = redacted(event.content)
    return ["result", who, event.turn, event.at, event.name, event.call_id, content, event.is_error, call]


def _revive(data: list[Any], session: str) -> Event:
    kind, (run, parent_run, agent), turn, at, name, call_id, content, *rest = data
    origin = Origin(session, run, parent_run, agent)
    if kind == "call":
        return ToolCall(origin=origin, turn=turn, at=at, name=name, call_id=call_id, arguments=content)
    if kind == "message":
        return Message(origin=origin, turn=turn, at=at, role=name, content=content)
    is_error, call = rest
    made = None if call is None else _revive(call, session)
    return ToolResult(
        origin=origin,
        turn=turn,
        at=at,
        name=name,
        call_id=call_id,
        content=content,
        is_error=is_error,
        call=made if isinstance(made, ToolCall) else None,
    )
