"""Encodes and decodes the state of a session. Secrets are removed from the calls in it, as from every record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.engine.compile import Program
from bylaw.engine.evaluation import Evaluation
from bylaw.engine.scope import Undo, dumped_undo, revived_undo
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import Logged, PolicyState, SessionState
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.events import Event, Message, Origin, ToolCall, ToolResult
from bylaw.text.redaction.secrets import redacted

FORM = 1
"""version of the encoding; another version is refused"""
MOST_OTHERS = 32
"""policies of other guards whose state is stored again"""


class PolicyData(Struct, array_like=True):
    attempts: Raw
    calls: Raw
    log: list[tuple[Raw, bool]] = []
    """[event, undo record], and whether it is settled"""


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
_decode_event = msgspec.json.Decoder(list[Any]).decode


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
    log = [(_dump_logged(state.policy.calls, one, session), one.settled) for one in state.log]
    return PolicyData(Raw(state.attempts.snapshot()), Raw(state.calls.snapshot()), log)


def _dump_logged(program: Program, logged: Logged, session: SessionState) -> Raw:
    if logged.text is None:
        event = logged.event
        known = session.written.get(event.call_id) if isinstance(event, ToolCall) else None
        text = known[1] if known is not None and known[0] is event else _event(event)
        logged.text = Raw(_encode((text, dumped_undo(program, logged.undo))))
    return logged.text


def load(key: str, data: bytes, policies: Sequence[CompiledPolicy]) -> SessionState:
    """Raises StoreUnavailable for a state that another version of bylaw has written."""
    state = SessionState(key)
    if not data:
        return state
    found = _read(key, data)
    known = {policy.hash: policy for policy in policies}
    for hash, saved in found.policies.items():
        if hash in known:
            state.policies[hash] = _load_policy(known[hash], saved, key)
    others = [hash for hash in found.policies if hash not in known]
    state.others = {hash: found.policies[hash] for hash in others[-MOST_OTHERS:]}
    state.above = found.above
    state.fed = frozenset(found.fed)
    state.runs, state.denied = found.runs, found.denied
    calls = [_revive(_decode_event(text), key) for text in found.open]
    state.open = {call.call_id: call for call in calls if isinstance(call, ToolCall)}
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


def _load_policy(policy: CompiledPolicy, saved: PolicyData, session: str) -> PolicyState:
    state = PolicyState(policy)
    state.attempts = Evaluation.restore(policy.attempts, bytes(saved.attempts))
    state.calls = Evaluation.restore(policy.calls, bytes(saved.calls))
    for text, settled in saved.log:
        event, undo = _decode_logged(text)
        state.log.append(Logged(_revive(event, session), revived_undo(policy.calls, undo), settled, text.copy()))
    return state


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
