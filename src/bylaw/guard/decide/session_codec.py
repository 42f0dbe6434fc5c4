"""Encodes and decodes the state of a session. Secrets are removed from the calls in it, as from every record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.engine.evaluation import SessionSnapshot
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.engine.scope import NOTHING_MOVED, Undo, dumped_undo, revived_undo
from bylaw.engine.values import UNREADABLE
from bylaw.guard.decide.policy import CompiledPolicy, agent_of
from bylaw.guard.decide.redaction import StoredArguments, redacted_paths, unread_places
from bylaw.guard.decide.session import LoggedEvent, PolicyState, SessionState
from bylaw.guard.stores.ports import SessionUnreadable
from bylaw.model.events import Event, Message, Origin, ToolCall, ToolResult
from bylaw.text.redaction.redactor import Redactor

FORM = 2
"""version of the encoding; any other is refused"""
MOST_OTHERS = 32
"""policies of other guards whose state is stored again"""


class PolicyData(Struct, array_like=True):
    """The states of the rules of one policy, under names derived from what they count (see `policy`)."""

    counters: dict[str, Raw] = {}
    calls: Raw = Raw(b"null")
    """a `SessionSnapshot`"""
    log: list[tuple[Raw, bool]] = []
    """an event, or the id of an open call; and whether it is settled"""
    undo: list[Raw] = []
    """what takes back the whole log"""


class _Data(Struct, omit_defaults=True):
    form: int
    policies: dict[str, PolicyData] = {}
    """by `StateNames.key`"""
    fed: list[str] = []
    runs: dict[str, tuple[str | None, str | None]] = {}
    denied: dict[str, int] = {}
    open: list[Raw] = []
    above: dict[str, tuple[str, ...]] = {}
    turn: int | None = None
    used: str = ""
    """digests of call ids, eight characters each"""
    told: str = ""
    """digests of the ids of requests, likewise"""


class _NamedUndo(Struct, array_like=True):
    """An undo record with the names of rules instead of their indices."""

    states: dict[str, Any]
    untouched: list[str]
    broken: list[str]
    failed: dict[str, str | None]
    opened: bool


_encode = msgspec.json.Encoder().encode
_NOTHING_MOVED = Raw(_encode(_NamedUndo({}, [], [], {}, False)))
_decode = msgspec.json.Decoder(_Data).decode
_decode_snapshot = msgspec.json.Decoder(SessionSnapshot | None).decode
_decode_named_undo = msgspec.json.Decoder(_NamedUndo).decode
_decode_event = msgspec.json.Decoder(list[Any]).decode
_decode_entry = msgspec.json.Decoder(list[Any] | str).decode
_decode_value = msgspec.json.Decoder().decode


def dump(state: SessionState) -> bytes:
    calls = _dump_open(state)
    policies: dict[str, PolicyData] = dict(state.others)
    for policy in state.policies.values():
        key = policy.policy.names.key
        data = _dump_policy(policy, state)
        same = policies.get(key)
        if same is not None:  # two files for one agent
            data.counters = same.counters | data.counters
        policies[key] = data
    return _encode(
        _Data(
            form=FORM,
            policies=policies,
            fed=sorted(state.fed),
            runs=state.runs,
            denied=state.denied,
            above=state.above,
            open=calls,
            turn=state.turn,
            used="".join(state.used),
            told="".join(state.reported),
        )
    )


def _dump_open(state: SessionState) -> list[Raw]:
    """A call that was encoded before is not searched for secrets again."""
    known, texts = state.written, {}
    for call_id, call in state.open.items():
        written = known.get(call_id)
        if written is None or written[0] is not call:
            written = call, Raw(_encode(_event(call, state.redact)))
        texts[call_id] = written
    state.written = texts
    return [text for _, text in texts.values()]


def _dump_policy(state: PolicyState, session: SessionState) -> PolicyData:
    log = [(_dump_logged(one, session), one.settled) for one in state.log]
    undo = [_dump_undo(state)] if log else []
    names = state.policy.names
    calls = Raw(state.calls.carry(session.key, names.calls))
    return PolicyData(_dump_counters(state, session), calls, log, undo)


def _dump_counters(state: PolicyState, session: SessionState) -> dict[str, Raw]:
    """Each counter once, however many rules count the same: by the one with the highest limit. What has not changed
    since the last time is not encoded again."""
    policy, known, found, highest = state.policy, state.counter_states, state.counter_texts, state.counter_limits
    for index, own in state.attempts.all_states(session.key).items():
        if known.get(index) is own:
            continue
        known[index] = own
        counters = policy.names.counters[index]
        if not counters:
            continue
        monitor = policy.attempts.monitors[index]
        assert isinstance(monitor, AttemptMonitor)
        for counted, value in zip(counters, monitor.dump_counters(own), strict=True):
            if counted.limit >= highest.get(counted.name, -1):
                highest[counted.name], found[counted.name] = counted.limit, Raw(_encode(value))
    return found


def _dump_undo(state: PolicyState) -> Raw:
    undo, known = state.undo, state.undo_text
    if undo is NOTHING_MOVED:
        return _NOTHING_MOVED
    if known is None or known[0] is not undo:
        plain, names = dumped_undo(state.policy.calls, undo), state.policy.names.calls
        named = _NamedUndo(
            {names[index]: before for index, before in plain.states.items()},
            [names[index] for index in plain.untouched],
            [names[index] for index in plain.broken],
            {names[index]: reason for index, reason in plain.failed.items()},
            plain.opened,
        )
        known = state.undo_text = undo, Raw(_encode(named))
    return known[1]


def _dump_logged(logged: LoggedEvent, session: SessionState) -> Raw:
    event = logged.event
    if isinstance(event, ToolCall) and session.open.get(event.call_id) is event:
        return Raw(_encode(event.call_id))
    if logged.text is None:
        logged.text = Raw(_encode(_event(event, session.redact)))
    return logged.text


def load(key: str, data: bytes, policies: Sequence[CompiledPolicy]) -> SessionState:
    """Raises SessionUnreadable for a state that another version of bylaw has written."""
    state = SessionState(key)
    if not data:
        return state
    try:
        found = _decode(data)
    except msgspec.ValidationError:
        found = None
    if found is None or found.form != FORM:
        raise SessionUnreadable(f"the session `{key}` was written by another version of bylaw")
    calls = [_revive(_decode_event(text), key, policies) for text in found.open]
    state.open = {call.call_id: call for call in calls if isinstance(call, ToolCall)}
    for policy in policies:
        _load_policy(policy, found.policies, state, policies)
    state.others = _state_of_other_guards(found.policies, policies)
    state.above = found.above
    state.fed = frozenset(found.fed)
    state.runs, state.denied = found.runs, found.denied
    state.turn = found.turn
    state.used, state.reported = _digests(found.used), _digests(found.told)
    return state


def _digests(text: str) -> dict[str, None]:
    return {text[i : i + 8]: None for i in range(0, len(text), 8)}


def _load_policy(
    policy: CompiledPolicy, saved: dict[str, PolicyData], session: SessionState, policies: Sequence[CompiledPolicy]
) -> None:
    """What any policy of the agent remembers is continued by the rules that remember the same. The log is read only
    where it covers all rules: a call is taken back in all of them or in none."""
    names = policy.names
    of_agent = [(key, one) for key, one in saved.items() if agent_of(key) == names.agent]
    if not of_agent:
        return
    state = session.policies[policy.hash] = PolicyState(policy)
    counters = {name: text for _, one in of_agent for name, text in one.counters.items()}
    _load_counters(state, counters, session.key)
    remembered = set(counters)
    for key, one in of_agent:
        carried = _decode_snapshot(one.calls)
        if carried is not None and (key == names.key or not names.indices.keys().isdisjoint(carried.states)):
            state.calls.carry_on(session.key, carried, names.indices)
            remembered.update(carried.states)
    own = saved.get(names.key)
    if own is None:
        session.afresh = session.afresh or not names.known() <= remembered
    elif own.log:
        log = [_load_logged(text, settled, session, policies) for text, settled in own.log]
        state.read_log(log, _load_undo(policy, own.undo[0]))


def _load_counters(state: PolicyState, found: dict[str, Raw], session: str) -> None:
    policy = state.policy
    for index, counters in enumerate(policy.names.counters):
        if any(counted.name in found for counted in counters):
            monitor = policy.attempts.monitors[index]
            assert isinstance(monitor, AttemptMonitor)
            texts = [found.get(counted.name) for counted in counters]
            values = [None if text is None else _decode_value(text) for text in texts]
            state.attempts.put_state(session, index, monitor.revive_counters(values))


def _load_undo(policy: CompiledPolicy, text: Raw) -> Undo:
    named, indices = _decode_named_undo(text), policy.names.indices
    undo = Undo(
        {index: before for name, before in named.states.items() for index in indices[name]},
        [index for name in dict.fromkeys(named.untouched) for index in indices[name]],
        [index for name in dict.fromkeys(named.broken) for index in indices[name]],
        {index: reason for name, reason in named.failed.items() for index in indices[name]},
        named.opened,
    )
    return revived_undo(policy.calls, undo)


def _state_of_other_guards(saved: dict[str, PolicyData], policies: Sequence[CompiledPolicy]) -> dict[str, PolicyData]:
    """What only rules of other guards remember. They do not see the calls that this one decides, so what they have
    reserved counts as made."""
    others: dict[str, PolicyData] = {}
    own: dict[str, set[str]] = {}
    for policy in policies:
        own.setdefault(policy.names.agent, set()).update(policy.names.known())
    keys = {policy.names.key for policy in policies}
    for key, one in saved.items():
        known = own.get(agent_of(key), set())
        counters = {name: text for name, text in one.counters.items() if name not in known}
        carried = None if key in keys else _decode_snapshot(one.calls)
        if carried is not None:
            for name in known & carried.states.keys():
                del carried.states[name]
        left = carried if carried is not None and carried.states else None
        if counters or left is not None:
            others[key] = PolicyData(counters, Raw(_encode(left)))
    return dict(list(others.items())[-MOST_OTHERS:])


def _load_logged(text: Raw, settled: bool, session: SessionState, policies: Sequence[CompiledPolicy]) -> LoggedEvent:
    entry = _decode_entry(text)
    if isinstance(entry, str):
        return LoggedEvent(session.open[entry], None, settled)
    return LoggedEvent(_revive(entry, session.key, policies), None, settled, text.copy())


def _event(event: Event, redact: Redactor) -> list[Any]:
    origin = event.origin
    who = [origin.run, origin.parent_run, origin.agent]
    if isinstance(event, ToolCall):
        return ["call", who, event.turn, event.at, event.name, event.call_id, *_arguments(event.arguments, redact)]
    assert isinstance(event, Message | ToolResult)
    content = event.content
    if content is UNREADABLE or redacted_paths(content, redact(content)):  # the remaining data must not decide anything
        content = None
    if isinstance(event, Message):
        return ["message", who, event.turn, event.at, event.role, None, content]
    call = None if event.call is None else _event(event.call, redact)
    return ["result", who, event.turn, event.at, event.name, event.call_id, content, event.is_error, call]


def _arguments(arguments: Any, redact: Redactor) -> list[Any]:
    """The arguments as they are stored, and the paths that differ from the original."""
    if type(arguments) is StoredArguments:
        return [arguments.written, arguments.places]
    written = redact(arguments)
    return [written] if written == arguments else [written, redacted_paths(arguments, written)]


def _revive(data: list[Any], session: str, policies: Sequence[CompiledPolicy]) -> Event:
    kind, (run, parent_run, agent), turn, at, name, call_id, content, *rest = data
    origin = Origin(session, run, parent_run, agent)
    if kind == "call":
        if rest and rest[0]:
            unread = unread_places(policies, name, rest[0])
            content = StoredArguments(content, rest[0], unread) if all(unread) else None
        return ToolCall(origin=origin, turn=turn, at=at, name=name, call_id=call_id, arguments=content)
    if kind == "message":
        return Message(origin=origin, turn=turn, at=at, role=name, content=UNREADABLE if content is None else content)
    is_error, call = rest
    made = None if call is None else _revive(call, session, policies)
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
