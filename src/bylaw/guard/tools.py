"""Functions that run only if a guard lets them: `@guard.tool`, `guard.run` and `guard.arun`.

Every call goes through the same steps. It is decided; what runs is `Decision.call`, which a person may have changed;
its result is recorded. If it raises an exception, that is recorded as well, or the call is released, as `on_error`
says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, update_wrapper
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Struct

from bylaw.guard.async_guard import AsyncGuard
from bylaw.guard.model import Attempt, Call, Denied

OnDenied: TypeAlias = Literal["raise", "return"]
OnError: TypeAlias = Literal["record", "release"]
Invoke: TypeAlias = Callable[[Call], Any]
"""runs the call that may run; raises CannotRun before anything has run"""


class CannotRun(Exception):
    """The call that was approved cannot be made with this function; nothing has run."""


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


def run_call(guard: AsyncGuard, attempt: Attempt, invoke: Invoke, handling: Handling) -> Any:
    timeout = handling.timeout
    decision = guard.decide(attempt) if timeout is None else guard.ask(attempt, timeout=timeout)
    if decision.call is None or not decision:
        return _denied(Denied(decision), handling)
    try:
        result = invoke(decision.call)
        if inspect.isawaitable(result):
            _close(result)
            raise TypeError("the function is asynchronous: await guard.arun(…)")
    except CannotRun as why:
        guard.release(decision)
        return _denied(Denied(decision, str(why)), handling)
    except BaseException as problem:
        if handling.on_error == "release":
            guard.release(decision)
        else:
            guard.record(decision, _error_text(problem), is_error=True)
        raise
    guard.record(decision, plain_json(result))
    return result


async def arun_call(guard: AsyncGuard, attempt: Attempt, invoke: Invoke, handling: Handling) -> Any:
    timeout = handling.timeout
    decision = await (guard.adecide(attempt) if timeout is None else guard.aask(attempt, timeout=timeout))
    if decision.call is None or not decision:
        return _denied(Denied(decision), handling)
    try:
        result = invoke(decision.call)
        if inspect.isawaitable(result):
            result = await result
    except CannotRun as why:
        await guard.arelease(decision)
        return _denied(Denied(decision, str(why)), handling)
    except BaseException as problem:  # a task that is cancelled has run in part
        if handling.on_error == "release":
            guard.release(decision)
        else:
            guard.record(decision, _error_text(problem), is_error=True)
        raise
    await guard.arecord(decision, plain_json(result))
    return result


def _denied(denied: Denied, handling: Handling) -> str:
    if handling.on_denied == "return":
        return str(denied)
    raise denied


def _close(awaitable: Any) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()


def _error_text(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"


def plain_json(value: Any) -> Any:
    """The value as JSON: data classes, models, dates, tuples and sets have a form. Anything else is returned as it is,
    and the guard says that it is not JSON."""
    try:
        return msgspec.to_builtins(value, enc_hook=_model_json)
    except (TypeError, ValueError, NotImplementedError, RecursionError):
        return value


def _model_json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # Pydantic
    if callable(dump):
        return dump(mode="json")
    raise NotImplementedError


# -- functions as tools -----------------------------------------------------------------------------------------------


class Tool:
    """A function that a guard decides. Calling it decides, runs and records; `function` is the function itself."""

    def __init__(
        self,
        guard: AsyncGuard,
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
        bound.apply_defaults()  # a rule has to see the amount that would be paid, also if it is the default
        arguments = plain_json(self._named(bound))

        def invoke(call: Call) -> Any:
            if call.tool == self.name and (call.arguments is arguments or call.arguments == arguments):
                return self.function(*bound.args, **bound.kwargs)
            tool = self if call.tool == self.name else self._tools.get(call.tool)
            if tool is None:
                raise CannotRun(f"`{call.tool}` was approved in its place, which is no tool of this guard")
            return tool.run_with(call.arguments, self._kept(bound, arguments, call) if tool is self else {})

        return Attempt(tool=self.name, arguments=arguments), invoke

    def _named(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """The arguments by name, without those that no rule sees."""
        found: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if name in self._ignored:
                continue
            if self.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                found |= value
            else:
                found[name] = value
        return found

    def _kept(self, bound: inspect.BoundArguments, arguments: Any, call: Call) -> dict[str, Any]:
        """The objects of the original call that the edit left alone."""
        return {
            name: value
            for name, value in bound.arguments.items()
            if name in self._ignored or (name in arguments and call.arguments.get(name, _ABSENT) == arguments[name])
        }

    def run_with(self, arguments: Mapping[str, Any], kept: Mapping[str, Any]) -> Any:
        """Run the function with JSON arguments. Raises CannotRun if they do not fit it."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        left = dict(arguments)
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named |= left
                left = {}
                continue
            if name not in left and name not in kept:
                continue
            value = kept[name] if name in kept else self._converted(name, left[name])
            left.pop(name, None)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                positional += value
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[name] = value
        try:
            if left:
                raise TypeError(f"it has no parameter `{next(iter(left))}`")
            bound = self.signature.bind(*positional, **named)
        except TypeError as why:
            raise CannotRun(f"the call that was approved does not fit `{self.name}`: {why}") from None
        return self.function(*bound.args, **bound.kwargs)

    def _converted(self, name: str, value: Any) -> Any:
        wanted = self._types.get(name, Any)
        try:
            return msgspec.convert(value, wanted, strict=False)
        except (msgspec.ValidationError, ValueError) as why:
            raise CannotRun(f"the call that was approved does not fit `{self.name}`: `{name}`: {why}") from None
        except TypeError:  # a type that msgspec does not know
            return value

    @cached_property
    def _types(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function)
        except Exception:  # names that only a type checker knows
            return {}


_ABSENT = object()


def invoke_with_arguments(tools: Mapping[str, Tool], attempt: Attempt, function: Callable[..., Any]) -> Invoke:
    """Runs the function with the arguments of the call, or the tool that was approved in its place."""

    def invoke(call: Call) -> Any:
        if call.tool == attempt.tool:
            return function(**call.arguments)
        tool = tools.get(call.tool)
        if tool is None:
            raise CannotRun(f"`{call.tool}` was approved in its place, which is no tool of this guard")
        return tool.run_with(call.arguments, {})

    return invoke
