"""Checks an attempt before any rule sees it. A malformed attempt is a structural denial, never an exception or a
pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from sys import float_info
from typing import Any

import jsonschema_rs

from bylaw.engine.predicates import RedactedArguments
from bylaw.guard.model import LONGEST_NAME, Attempt, Decision, Limits, check_names, is_name, is_text
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
    """The attempt as the event that rules judge, with arguments of its own, since the host may change its objects.
    `origin` is used if the attempt names nothing but its session. Raises Refused."""
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
    elif not is_time(ts):
        raise Refused("`ts` is a finite number of seconds since 1970")
    # `None` says that there are none, not that nobody recorded them
    known = {} if arguments is None else own_json(arguments, limits)
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
    return isinstance(ts, int | float) and not isinstance(ts, bool) and abs(ts) <= float_info.max


def check_json(value: Any, limits: Limits) -> None:
    """Raises Refused for values that are not JSON, nested too deeply or too big. The cost is bounded by the limits."""
    own_json(value, limits)


def own_json(value: Any, limits: Limits) -> Any:
    """A copy of the value, in which dicts, lists, texts and numbers are those of Python and not of a class of the host.
    Raises Refused as `check_json` does: the copy is checked, and not the value, which may change meanwhile."""
    if type(value) is not dict or len(value) > _FEW or limits.bytes < _SMALL:
        return _copy_all(value, limits)
    own = value.copy()
    for key, one in own.items():  # the common case: a flat mapping of short values
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
        return own
    return _copy_all(own, limits)


def copied(value: Any) -> Any:
    """A copy of JSON that was checked."""
    kind = type(value)
    if kind is dict:
        own = value.copy()
        for key, one in value.items():
            if type(one) in _NESTS:
                own[key] = copied(one)
        return own
    return kind([copied(one) for one in value]) if kind is list or kind is tuple else value


_NESTS = frozenset({dict, list, tuple})


def _copy_all(value: Any, limits: Limits) -> Any:
    try:
        copy = _Copy(limits).of(value, 0)
        return value if type(value) is RedactedArguments else copy  # an audit has made it, of values that were copied
    except RecursionError:
        raise Refused("the arguments are nested too deeply to be judged") from None


class _Copy:
    """One copy, within the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._left = limits, limits.bytes

    def of(self, one: Any, depth: int) -> Any:
        kind = type(one)
        if kind is str and one.isascii():
            self._spend(len(one))
            return one
        if depth > self._limits.depth:
            raise Refused(f"the arguments are nested more than {self._limits.depth} levels deep")
        if isinstance(one, dict):
            return self._dict(one, depth)
        if isinstance(one, list | tuple):
            items = list.copy(one) if isinstance(one, list) else tuple.__getitem__(one, slice(None))
            self._spend(4, holds=len(items))
            copy = [self.of(inner, depth + 1) for inner in items]
            return copy if isinstance(one, list) else tuple(copy)
        return self._scalar(one)

    def _dict(self, one: dict[Any, Any], depth: int) -> dict[str, Any]:
        own = dict.copy(one)
        self._spend(4, holds=len(own))
        copy: dict[str, Any] = {}
        for key, inner in own.items():
            if not isinstance(key, str) or not is_text(key):
                raise Refused("the arguments have a key that is not text")
            self._spend(len(key))
            copy[key if type(key) is str else str.__str__(key)] = self.of(inner, depth + 1)
        return copy

    def _scalar(self, one: Any) -> Any:
        if one is None or isinstance(one, bool):
            self._spend(4)
            return one
        if isinstance(one, str):
            if not is_text(one):
                raise Refused("the arguments hold half a surrogate pair, which is not a character")
            self._spend(len(one))
            return one if type(one) is str else str.__str__(one)
        if isinstance(one, int):
            bits = int.bit_length(one)
            if bits > _MOST_BITS:
                raise Refused("the arguments hold a number of thousands of digits")
            self._spend(4 + bits // 4)
            return one if type(one) is int else int.__int__(one)
        if isinstance(one, float):
            if not isfinite(one):
                raise Refused(f"`{one}` is not a JSON number")
            self._spend(8)
            return one if type(one) is float else float.__float__(one)
        raise Refused(f"the arguments hold a value of type `{type(one).__name__}`, which is not JSON")

    def _spend(self, size: int, *, holds: int = 0) -> None:
        self._left -= size
        if self._left < 4 * holds:  # before any of them is looked at
            raise Refused(f"the arguments are larger than {self._limits.bytes:,} bytes")


def no_attempt(value: Any) -> Attempt:
    """In place of something else that a host passed: it is refused, since an exception might be caught and the call
    be run."""
    return Attempt(tool=f"[not an Attempt: {type(value).__name__}]", session="-", ancestors=None)  # type: ignore[arg-type]


def call_key(decision: Decision | str, session: str | None) -> tuple[str, str]:
    """The id of a call and its session, as a host names them."""
    if isinstance(decision, Decision):
        return decision.call_id, decision.session
    if session is None:
        raise TypeError("a call that is named by its id needs session=…")
    check_names(decision=decision, session=session)
    return decision, session


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
