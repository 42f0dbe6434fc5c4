"""`bylaw.tool` marks a function as a tool. Outside a run it is the function and nothing else.

@bylaw.tool
def search(query: str) -> dict: ...

@bylaw.tool(name="find_order")
async def find(order_id: str) -> dict: ...

Agents import this module, so it imports nothing that is slow to load.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, cast, overload

from bylaw.wire.listeners import current_run

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_names: set[str] = set()
_calling: ContextVar[tuple[str, ...]] = ContextVar("bylaw_calling", default=())


class ToolRun(Protocol):
    """The run of an agent in this process, as its tools see it."""

    def call_tool(
        self, name: str, arguments: Any, function: Callable[[], Any], *, defaults: Mapping[str, Any]
    ) -> Any: ...

    async def acall_tool(
        self, name: str, arguments: Any, function: Callable[[], Awaitable[Any]], *, defaults: Mapping[str, Any]
    ) -> Any: ...


@overload
def tool(function: AnyFunction, /) -> AnyFunction: ...


@overload
def tool(*, name: str | None = None) -> Callable[[AnyFunction], AnyFunction]: ...


def tool(function: Any = None, /, *, name: str | None = None) -> Any:
    """Mark a function, sync or async, as a tool, so that faults can hit its calls and rules can judge them.

    The function keeps its signature and, outside a run of `bylaw contract`, does exactly what it did before.
    """
    if function is None:
        return lambda decorated: as_tool(decorated, name=name)
    return as_tool(function, name=name)


def as_tool(function: Any, *, name: str | None = None) -> Any:
    """The function as a tool, by default under its own name."""
    if not callable(function):
        raise TypeError(f"a tool is a function, not `{function!r}`")
    own_name = getattr(function, "__name__", None) or type(function).__name__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"a tool returns its result and does not yield it: `{own_name}`")
    name = name or own_name
    _names.add(name)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            run = run_for(name)
            if run is None:
                return await function(*args, **kwargs)
            given, defaults = _arguments(function, args, kwargs), _defaults(function)
            return await run.acall_tool(name, given, lambda: function(*args, **kwargs), defaults=defaults)

        return acall

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        run = run_for(name)
        if run is None:
            return function(*args, **kwargs)
        given, defaults = _arguments(function, args, kwargs), _defaults(function)
        return run.call_tool(name, given, lambda: function(*args, **kwargs), defaults=defaults)

    return call


def marked_names() -> frozenset[str]:
    """The names of all functions that were marked as tools in this process so far."""
    return frozenset(_names)


def is_inside_tool() -> bool:
    """Whether a tool that was called by name runs this code."""
    return bool(_calling.get())


@contextmanager
def inside_tool(name: str) -> Iterator[None]:
    """The code in this block runs in the tool."""
    token = _calling.set((*_calling.get(), name))
    try:
        yield
    finally:
        _calling.reset(token)


def run_for(name: str) -> ToolRun | None:
    """The run that a call of this tool belongs to.

    None outside a run, and inside a call of the same name: a function that both `bylaw.tool` and a framework know is
    one tool.
    """
    run = current_run()
    return None if run is None or name in _calling.get()[-1:] else cast("ToolRun", run)


def _arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, without `self`. If they do not fit, the function itself will raise the error."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    flat: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            flat.update(value)
        elif not (name == "self" and not flat):
            flat[name] = value
    return flat


def _defaults(function: Any) -> dict[str, Any]:
    """The defaults of the arguments that a call leaves out."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
