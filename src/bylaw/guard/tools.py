"""Functions that run only if a guard lets them: `@guard.tool`, `guard.run` and `guard.arun`.

Every call goes through the same steps. It is decided; what runs is `Decision.call`, which a person may have changed;
its result is recorded. If it raises an exception, that is recorded as well, or the call is released, as `on_error`
says.

Lists and objects of plain JSON are passed to a function as the copies that were judged. Anything else, such as a data
class, is passed as it is; right before the function runs, it is compared with what was judged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, update_wrapper
from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Struct

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.json_values import RefusedAttempt, own_json
from bylaw.guard.model import Attempt, Call, Denied, Limits
from bylaw.model.canonical import prepared

OnDenied: TypeAlias = Literal["raise", "return"]
OnError: TypeAlias = Literal["record", "release"]
Invoke: TypeAlias = Callable[[Call, bool], Any]
"""runs the call that may run, which a person may have edited or not; raises CannotRun before anything has run"""


class CannotRun(Exception):
    """The call that was approved cannot be made with this function; nothing has run."""


class NotItsTool(CannotRun):
    """A person has approved another tool in place of the one that was called, and the caller does not have it."""

    def __init__(self, tool: str, of: str = "agent") -> None:
        super().__init__(f"`{tool}` was approved in its place, but this {of} has no such tool")


class Handling(Struct, frozen=True, kw_only=True):
    """What happens around a call."""

    on_denied: OnDenied = "raise"
    """`raise` Denied, or `return` its text"""
    on_error: OnError = "record"
    """what an exception of the tool says: it ran and failed (`record`), or it never ran (`release`)"""
    timeout: float | None = None
    """seconds to wait for a person if the call pauses; None: a paused call is denied"""

    def __post_init__(self) -> None:
        for name, known in (("on_denied", get_args(OnDenied)), ("on_error", get_args(OnError))):
            if getattr(self, name) not in known:
                choices = " or ".join(f"`{one}`" for one in known)
                raise ValueError(f"{name}={getattr(self, name)!r}: expected {choices}")


def run_call(guard: BaseGuard, attempt: Attempt, invoke: Invoke, handling: Handling) -> Any:
    timeout = handling.timeout
    decision = guard.decide(attempt) if timeout is None else guard.ask(attempt, timeout=timeout)
    if decision.call is None or not decision:
        return _explain_denial(Denied(decision), handling)
    try:
        result = invoke(decision.call, decision.review is not None)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError("the function is asynchronous: await guard.arun(…)")
    except CannotRun as why:
        guard.release(decision)
        return _explain_denial(Denied(decision, str(why)), handling)
    except BaseException as problem:
        if handling.on_error == "release":
            guard.release(decision)
        else:
            guard.record(decision, _error_text(problem), is_error=True)
        raise
    guard.record(decision, plain_json(result))
    return result


async def arun_call(guard: BaseGuard, attempt: Attempt, invoke: Invoke, handling: Handling) -> Any:
    timeout = handling.timeout
    decision = await (guard.adecide(attempt) if timeout is None else guard.aask(attempt, timeout=timeout))
    if decision.call is None or not decision:
        return _explain_denial(Denied(decision), handling)
    try:
        result = invoke(decision.call, decision.review is not None)
        if inspect.isawaitable(result):
            result = await result
    except CannotRun as why:
        await guard.arelease(decision)
        return _explain_denial(Denied(decision, str(why)), handling)
    except BaseException as problem:  # a task that is cancelled has run in part
        if handling.on_error == "release":
            guard.release(decision)
        else:
            guard.record(decision, _error_text(problem), is_error=True)
        raise
    await guard.arecord(decision, plain_json(result))
    return result


def _explain_denial(denied: Denied, handling: Handling) -> str:
    if handling.on_denied == "return":
        return str(denied)
    raise denied


def _error_text(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"


_BYTES = (bytes, bytearray, memoryview)


def plain_json(value: Any) -> Any:
    """The value as JSON: data classes, models, dates, tuples and sets have a form, and bytes are the text that they
    encode. Anything else is returned as it is, and the guard says that it is not JSON."""
    try:
        return _decode_bytes(msgspec.to_builtins(value, enc_hook=_other_json, builtin_types=_BYTES))
    except (TypeError, ValueError, NotImplementedError, RecursionError, RefusedAttempt):
        return value


def _other_json(value: Any) -> Any:
    if isinstance(value, str | int | float):  # of a class of the host
        return own_json(value, _LIMITS)
    dump = getattr(value, "model_dump", None)  # Pydantic
    if callable(dump):
        return dump(mode="json")
    raise NotImplementedError


def _decode_bytes(value: Any) -> Any:
    """Bytes as text, so that rules and redaction see what is in them. Bytes that are no UTF-8 become an object, which
    cannot be compared with any text."""
    kind = type(value)
    if kind is dict:
        return {key: _decode_bytes(one) if type(one) not in _SCALARS else one for key, one in value.items()}
    if kind is list or kind is tuple:
        return [_decode_bytes(one) for one in value]
    if not isinstance(value, _BYTES):
        return value
    content = bytes(value)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"bytes": len(content), "sha256": sha256(content).hexdigest()}


_LIMITS = Limits(bytes=64 << 20)
"""of one value; those of the guard are applied to all of them"""
_SCALARS = frozenset({str, int, float, bool, type(None)})
_encode = msgspec.json.Encoder(order="sorted").encode


def is_same_json(one: Any, other: Any) -> bool:
    """Whether both are the same JSON; to Python, `1` and `True` would be equal."""
    try:
        return _encode(one) == _encode(other)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _is_plain(value: Any) -> bool:
    """Whether nothing but JSON is in it, and no object of a class of the host."""
    kind = type(value)
    if kind is list:
        return all(map(_is_plain, value))
    return kind in _SCALARS or (kind is dict and all(type(key) is str and _is_plain(value[key]) for key in value))


# -- functions as tools -----------------------------------------------------------------------------------------------


class Tool:
    """A function that a guard decides. Calling it decides, runs and records; `function` is the function itself."""

    def __init__(
        self,
        guard: BaseGuard,
        function: Callable[..., Any],
        name: str | None,
        ignore: Collection[str],
        handling: Handling,
        tools: Mapping[str, Tool],
    ) -> None:
        """`tools`: the tools that a person may approve in place of this one, by name."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"`{function.__name__}` yields: a guard decides calls that return once")
        self.guard, self.function, self.handling = guard, function, handling
        self._tools = tools
        self.name = name or function.__name__
        self.signature = inspect.signature(function)
        first = next(iter(self.signature.parameters), None)
        self._ignored = frozenset(ignore) | ({first} if first in ("self", "cls") else set())
        kinds = {name: parameter.kind for name, parameter in self.signature.parameters.items()}
        self._further = next((name for name in kinds if kinds[name] is inspect.Parameter.VAR_POSITIONAL), None)
        self._rest = next((name for name in kinds if kinds[name] is inspect.Parameter.VAR_KEYWORD), None)
        """the names of its `*` and `**` parameters"""
        self._only_by_position = frozenset(name for name in kinds if kinds[name] is inspect.Parameter.POSITIONAL_ONLY)
        self._first = [name for name in kinds if kinds[name] is not inspect.Parameter.KEYWORD_ONLY]
        """those that can be passed by position"""
        self._first = [name for name in self._first if name not in (self._further, self._rest)]
        unknown = self._ignored - self.signature.parameters.keys()
        if isinstance(ignore, str) or unknown:
            raise ValueError(f"ignore={ignore!r}: expected parameters of `{self.name}`")

    def is_earlier_form_of(self, other: Tool) -> bool:
        """Whether both are the same definition, run twice, as in a notebook."""
        mine, theirs = self.function, other.function
        return (mine.__module__, mine.__qualname__) == (theirs.__module__, theirs.__qualname__)

    def wrapped(self) -> Callable[..., Any]:
        """A function, and not an object: frameworks look at the signature of what they call, and methods have to
        bind."""
        if inspect.iscoroutinefunction(self.function):

            async def acall(*args: Any, **named: Any) -> Any:
                attempt, invoke = self._prepare(args, named)
                return await arun_call(self.guard, attempt, invoke, self.handling)

            wrapper: Any = acall
        else:

            def call(*args: Any, **named: Any) -> Any:
                attempt, invoke = self._prepare(args, named)
                return run_call(self.guard, attempt, invoke, self.handling)

            wrapper = call
        update_wrapper(wrapper, self.function)
        wrapper.tool = self
        return wrapper  # type: ignore[no-any-return]

    def _prepare(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Attempt, Invoke]:
        bound = self.signature.bind(*args, **named)
        given = tuple(bound.arguments)
        bound.apply_defaults()  # a rule has to see the amount that would be paid, also if it is the default
        originals = self._named_arguments(bound)
        arguments = plain_json(originals)

        def invoke(call: Call, may_be_edited: bool) -> Any:
            tool = self if call.tool == self.name else self._tools.get(call.tool)
            if tool is None:
                raise NotItsTool(call.tool, "guard")
            if tool is not self:
                return tool.run_with(call.arguments, {})
            is_edited = may_be_edited and not is_same_json(call.arguments, arguments)
            kept = {
                name: value
                if type(value) in _SCALARS
                else self._argument_to_run(name, value, call.arguments[name], given)
                for name, value in originals.items()
                if not is_edited or (name in call.arguments and is_same_json(call.arguments[name], arguments[name]))
            }
            for name in self._ignored:
                kept[name] = bound.arguments[name]
            if is_edited:
                return self.run_with(call.arguments, kept, len(args))
            positional, by_name = self._place_arguments(kept, len(args))
            return self.function(*positional, **by_name)

        return Attempt(tool=self.name, arguments=arguments), invoke

    def _named_arguments(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """The arguments by name, without those that no rule sees. Raises TypeError if a name is there twice."""
        found: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if name in self._ignored:
                continue
            if name != self._rest:
                found[name] = value
                continue
            for key in value:
                if key in self.signature.parameters and key != name:  # a rule would see one of them, and both would run
                    raise TypeError(f"{self.name}() got `{key}` by position and by name, so no rule could tell which")
            found |= value
        return found

    def _argument_to_run(self, name: str, value: Any, judged: Any, given: Collection[str]) -> Any:
        """The argument to run with: what was judged, or the object of the host that still is the same. Raises
        CannotRun if it has changed meanwhile."""
        is_default = name in self.signature.parameters and name not in given  # it belongs to the function
        if not is_default and (_is_plain(value) or (type(value) is tuple and all(map(_is_plain, value)))):
            return judged if type(value) is not tuple else tuple(judged)
        if not is_same_json(plain_json(value), judged):
            raise CannotRun(f"`{name}` was changed while the call was being decided")
        return value

    def run_with(self, arguments: Any, unjudged: Mapping[str, Any], by_position: int = 0) -> Any:
        """Run the function with JSON arguments, or in their place with those that are `kept`. Raises CannotRun if they
        do not fit it."""
        values: dict[str, Any] = {}
        try:
            for name, value in arguments.items():
                if name in self._ignored:
                    raise TypeError(f"`{name}` is hidden from the rules, so an approval cannot set it")
                if name not in self.signature.parameters and (self._rest is None or self._rest in self._ignored):
                    raise TypeError(f"it has no parameter `{name}`")
                if name == self._further and not isinstance(value, list):
                    raise TypeError(f"`{name}` is a list")
                values[name] = unjudged[name] if name in unjudged else self._convert_argument(name, value)
            positional, named = self._place_arguments({**unjudged, **values}, by_position)
            self.signature.bind(*positional, **named)
        except (TypeError, AttributeError) as why:
            reason = why if isinstance(why, TypeError) else "its arguments have no names"
            raise CannotRun(f"the call that was approved does not fit `{self.name}`: {reason}") from None
        return self.function(*positional, **named)

    def _place_arguments(self, values: Mapping[str, Any], by_position: int) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call by position, which are the first so many, and by name."""
        positional: list[Any] = []
        named = dict(values)
        if self._further is not None and values.get(self._further):  # nothing before them can be passed by name
            by_position = len(self.signature.parameters)
        for name in self._first:
            if name in named and (name in self._only_by_position or len(positional) < by_position):
                positional.append(named.pop(name))
        if self._further is not None:
            positional += named.pop(self._further, ())
        if self._rest is not None and self._rest in self._ignored:
            named |= named.pop(self._rest)
        return positional, named

    def _convert_argument(self, name: str, value: Any) -> Any:
        """The value as the type that the function names. Raises TypeError."""
        wanted = self._types.get(name, self._types.get(self._rest or "", Any))
        if name == self._further:
            wanted = list[wanted]  # type: ignore[valid-type]
        if isinstance(value, str) and wanted in (bytes, bytearray):  # rules have seen them as this text
            return wanted(value.encode())
        try:
            return msgspec.convert(value, prepared(wanted), strict=False, builtin_types=_BYTES)
        except (msgspec.ValidationError, ValueError) as why:
            raise TypeError(f"`{name}`: {why}") from None
        except TypeError:  # a type that msgspec does not know
            return value

    @cached_property
    def _types(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function)
        except Exception:  # names that only a type checker knows
            return {}


def invoke_with_arguments(tools: Mapping[str, Tool], attempt: Attempt, function: Callable[..., Any]) -> Invoke:
    """Runs the function with the arguments of the call, or the tool that was approved in its place."""

    def invoke(call: Call, _: bool) -> Any:
        if call.tool == attempt.tool:
            return function(**call.arguments)
        tool = tools.get(call.tool)
        if tool is None:
            raise NotItsTool(call.tool, "guard")
        return tool.run_with(call.arguments, {})

    return invoke
