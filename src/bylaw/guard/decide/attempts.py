"""What is asked, made sure of. Anything malformed is a structural denial, never an exception and never a pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import jsonschema_rs
from msgspec import Struct

from bylaw.engine.predicates import Told
from bylaw.guard.decision import Attempt
from bylaw.model.canonical import canonical_json
from bylaw.model.events import Origin, ToolCall

MOST_DEPTH = 64
MOST_BYTES = 1 << 20
"""of arguments, unless the guard is told otherwise"""
LONGEST_NAME = 512


class Refused(Exception):
    """The attempt cannot be judged; the argument says why, in the model's words."""


class Limits(Struct, frozen=True):
    bytes: int = MOST_BYTES
    depth: int = MOST_DEPTH


def call_of(
    attempt: Attempt, call_id: str, origin: Origin, turn: int | None, limits: Limits, clock: Callable[[], float]
) -> ToolCall:
    """The attempt as the event that rules judge. `origin` is that of an attempt that names nothing but its session.
    Raises Refused."""
    tool, session, arguments, ts = attempt.tool, attempt.session, attempt.arguments, attempt.ts
    run, parent_run, agent = attempt.run, attempt.parent_run, attempt.agent
    if not (
        type(tool) is str is type(session)  # the common case, which needs no closer look
        and tool.isascii()
        and session.isascii()
        and 0 < len(tool) <= LONGEST_NAME >= len(session)
        and run is parent_run is agent is attempt.call_id is None
        and not attempt.ancestors
    ):
        _check_names(attempt)
        origin = Origin(session, run, parent_run, agent)
    if ts is None:
        ts = clock()
    elif not (type(ts) is float and isfinite(ts)) and not _is_time(ts):
        raise Refused("`ts` is a finite number of seconds since 1970")
    if arguments is not None:
        check_json(arguments, limits)
    return ToolCall(origin=origin, turn=turn, at=ts, name=tool, call_id=call_id, arguments=arguments)


def _check_names(attempt: Attempt) -> None:
    """A host may build an Attempt of anything."""
    if not (attempt.tool and _is_name(attempt.tool) and _is_name(attempt.session)):
        raise Refused(f"`tool` and `session` are texts of at most {LONGEST_NAME} characters")
    others = (attempt.agent, attempt.run, attempt.parent_run, attempt.call_id, *attempt.ancestors)
    if not all(name is None or _is_name(name) for name in others):
        raise Refused(f"agents, runs and the id of a call are texts of at most {LONGEST_NAME} characters")


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= LONGEST_NAME and _is_text(name)


def _is_time(ts: Any) -> bool:
    return isinstance(ts, int | float) and not isinstance(ts, bool) and isfinite(ts)


def _is_text(text: str) -> bool:
    """Half a surrogate pair is no character: it has no UTF-8, so nothing could be searched for it or written down."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_SHORT = 1000


def check_json(value: Any, limits: Limits) -> None:
    """Refuses what JSON cannot say, what is nested too deeply, and what is too big, at a cost bounded by the limits."""
    if type(value) is not dict or len(value) > _FEW or limits.bytes < _SMALL:
        _check_all(value, limits)
        return
    for key, one in value.items():  # the common case: a flat mapping of short values
        if type(key) is not str or len(key) > _SHORT or not key.isascii():
            break
        kind = type(one)
        if kind is str:
            if len(one) > _SHORT or not one.isascii():
                break
        elif kind is int:
            if not -_BIG < one < _BIG:
                break
        elif one is not None and kind is not bool:
            break
    else:
        return
    _check_all(value, limits)


_FEW = 32
_SMALL = 2 * _FEW * _SHORT
"""bytes that a mapping of few short keys and values cannot exceed"""
_BIG = 1 << 62
_MOST_BITS = 14_000
"""of an integer: Python writes none of more than 4,300 digits"""


def _check_all(value: Any, limits: Limits) -> None:
    left = limits.bytes
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        one, depth = stack.pop()
        left -= _size(one)
        if left < 0:
            raise Refused(f"the arguments are larger than {limits.bytes:,} bytes")
        if isinstance(one, dict | list | tuple) and 4 * len(one) > left:
            raise Refused(f"the arguments are larger than {limits.bytes:,} bytes")
        if isinstance(one, dict):
            _refuse_keys(one)
            stack += [(inner, depth + 1) for inner in one.values()]
            left -= sum(map(len, one))
        elif isinstance(one, list | tuple):
            stack += [(inner, depth + 1) for inner in one]
        if depth > limits.depth:
            raise Refused(f"the arguments are nested more than {limits.depth} levels deep")


def _size(value: Any) -> int:
    if value is None or isinstance(value, dict | list | tuple):
        return 4
    if isinstance(value, int):
        if value.bit_length() <= _MOST_BITS:
            return 4 + value.bit_length() // 4
        raise Refused("the arguments hold a number of thousands of digits")
    if isinstance(value, float):
        if isfinite(value):
            return 8
        raise Refused(f"`{value}` is no JSON number")
    if isinstance(value, str):
        if _is_text(value):
            return len(value)
        raise Refused("the arguments hold half a surrogate pair, which is no character")
    raise Refused(f"the arguments hold a value of type `{type(value).__name__}`, which is not JSON")


def _refuse_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if not isinstance(key, str) or not _is_text(key):
            raise Refused("the arguments have a key that is not text")


def action_hash(tool: str, arguments: Any, agent: str | None, policy: str) -> str:
    """SHA-256 of the canonical action: an approval is bound to exactly this."""
    content = {"tool": tool, "arguments": arguments, "agent": agent, "policy": policy}
    return "sha256:" + hashlib.sha256(canonical_json(content)).hexdigest()


def _validator(tool: str, schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(schema)
    except (ValueError, TypeError) as problem:
        reason = getattr(problem, "message", None) or str(problem)
        raise ValueError(f"the schema of `{tool}` cannot be used: {reason}") from None


class ToolSchemas:
    """JSON Schemas of tools' arguments, by name. A call that does not fit is malformed, whatever the rules say."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._validators = {name: _validator(name, schema) for name, schema in schemas.items()}

    def check(self, call: ToolCall) -> None:
        validator = self._validators.get(call.name)
        if validator is None or type(call.arguments) is Told:  # it was checked while all of it was known
            return
        problem = next(validator.iter_errors(call.arguments if call.arguments is not None else {}), None)
        if problem is not None:
            raise Refused(f"the arguments do not fit the tool's schema: {problem.message}")
