"""Checks an attempt before any rule sees it. A malformed attempt is a structural denial, never an exception or a
pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import jsonschema_rs

from bylaw.engine.predicates import RedactedArguments
from bylaw.guard.model import LONGEST_NAME, Attempt, Limits, is_name, is_text
from bylaw.model.events import Origin, ToolCall

_SHORT = 1000
"""characters of a text that needs no closer look"""
_FEW = 32
"""keys of a mapping that needs no closer look"""
_SMALL = 2 * _FEW * _SHORT
"""bytes that such a mapping cannot exceed"""
_BIG = 1 << 62
_MOST_BITS = 14_000
"""of an integer: Python prints none of more than 4,300 digits"""


class Refused(Exception):
    """The attempt cannot be judged. The message is meant for the model."""


def call_of(
    attempt: Attempt, call_id: str, origin: Origin, turn: int | None, limits: Limits, clock: Callable[[], float]
) -> ToolCall:
    """The attempt as the event that rules judge. `origin` is used if the attempt names nothing but its session.
    Raises Refused."""
    tool, session, arguments, ts = attempt.tool, attempt.session, attempt.arguments, attempt.ts
    run, parent_run, agent = attempt.run, attempt.parent_run, attempt.agent
    if not (
        type(tool) is str  # the common case, which needs no closer look; whoever calls this has checked the session
        and tool.isascii()
        and 0 < len(tool) <= LONGEST_NAME
        and run is parent_run is agent is attempt.call_id is None
        and attempt.ancestors == ()
    ):
        _check_names(attempt)
        origin = Origin(session, run, parent_run, agent)
    if ts is None:
        ts = clock()
    elif not (type(ts) is float and isfinite(ts)) and not is_time(ts):
        raise Refused("`ts` is a finite number of seconds since 1970")
    if arguments is not None:
        check_json(arguments, limits)
    known = {} if arguments is None else arguments  # `None` says that there are none, not that nobody recorded them
    return ToolCall(origin=origin, turn=turn, at=ts, name=tool, call_id=call_id, arguments=known)


def _check_names(attempt: Attempt) -> None:
    """A host may construct an Attempt with values of any type."""
    if not (attempt.tool and is_name(attempt.tool) and is_name(attempt.session)):
        raise Refused(f"`tool` and `session` are texts of at most {LONGEST_NAME} characters")
    if not isinstance(attempt.ancestors, tuple | list):  # a text would be taken for a list of letters
        raise Refused("`ancestors` are a tuple of names")
    others = (attempt.agent, attempt.run, attempt.parent_run, attempt.call_id, *attempt.ancestors)
    if not all(name is None or is_name(name) for name in others):
        raise Refused(f"agents, runs and the id of a call are texts of at most {LONGEST_NAME} characters")


def is_time(ts: Any) -> bool:
    return isinstance(ts, int | float) and not isinstance(ts, bool) and isfinite(ts)


def check_json(value: Any, limits: Limits) -> None:
    """Raises Refused for values that are not JSON, nested too deeply or too big. The cost is bounded by the limits."""
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


def _check_all(value: Any, limits: Limits) -> None:
    left = limits.bytes
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        one, depth = stack.pop()
        left -= _size(one)
        if left < 0 or (isinstance(one, dict | list | tuple) and 4 * len(one) > left):
            raise Refused(f"the arguments are larger than {limits.bytes:,} bytes")
        if isinstance(one, dict):
            for key in one:
                if not isinstance(key, str) or not is_text(key):
                    raise Refused("the arguments have a key that is not text")
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
        raise Refused(f"`{value}` is not a JSON number")
    if isinstance(value, str):
        if is_text(value):
            return len(value)
        raise Refused("the arguments hold half a surrogate pair, which is not a character")
    raise Refused(f"the arguments hold a value of type `{type(value).__name__}`, which is not JSON")


class ToolSchemas:
    """JSON Schemas of tools' arguments, by tool name. A call that does not match is refused as malformed."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._validators = {name: _validator(name, schema) for name, schema in schemas.items()}

    def check(self, call: ToolCall) -> None:
        validator = self._validators.get(call.name)
        if validator is None or type(call.arguments) is RedactedArguments:  # checked before its arguments were redacted
            return
        problem = next(validator.iter_errors(call.arguments if call.arguments is not None else {}), None)
        if problem is not None:
            raise Refused(f"the arguments do not fit the tool's schema: {problem.message}")


def _validator(tool: str, schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(schema)
    except (ValueError, TypeError) as problem:
        reason = getattr(problem, "message", None) or str(problem)
        raise ValueError(f"the schema of `{tool}` cannot be used: {reason}") from None
