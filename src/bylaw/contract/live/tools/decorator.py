"""`bylaw.tool` shows a function as a tool. Outside a run it is the function and nothing else.

@bylaw.tool
def search(query: str) -> dict: ...

@bylaw.tool(name="find_order")
async def find(order_id: str) -> dict: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from bylaw.wire.current import LiveRun, current_run

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_shown: set[str] = set()
_calling: ContextVar[tuple[str, ...]] = ContextVar("bylaw_calling", default=())


@overload
def tool(function: AnyFunction, /) -> AnyFunction: ...


@overload
def tool(*, name: str | None = None) -> Callable[[AnyFunction], AnyFunction]: ...


def tool(function: Any = None, /, *, name: str | None = None) -> Any:
    """Shows a function, sync or async, as a tool, so that faults can hit its calls and rules can judge them.

    The function keeps its signature and, outside a run of `bylaw contract`, does exactly what it did before.
    """
    if function is None:
        return lambda decorated: shown(decorated, name=name)
    return shown(function, name=name)


def shown(function: Any, *, name: str | None = None) -> Any:
    """The function as a tool, by its own name where none is given."""
    if not callable(function):
        raise TypeError(f"a tool is a function, not `{function!r}`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"a tool returns its result and does not yield it: `{_name_of(function)}`")
    known = name or _name_of(function)
    _shown.add(known)
    return _shown_async(function, known) if inspect.iscoroutinefunction(function) else _shown_sync(function, known)


def shown_names() -> frozenset[str]:
    """The names of all tools shown so far in this process."""
    return frozenset(_shown)


def names_being_called() -> tuple[str, ...]:
    """The named tools this code runs in, from the outermost to the innermost."""
    return _calling.get()


def entered(name: str) -> Any:
    """Marks that this code runs in the tool; give what it returns to `left`."""
    return _calling.set((*_calling.get(), name))


def left(token: Any) -> None:
    _calling.reset(token)


def run_for(name: str) -> LiveRun | None:
    """The run that a call of this tool belongs to.

    None outside a run, and where the call is the inside of a call of the same name: a function shown by `bylaw.tool`
    and by a framework is one tool.
    """
    run = current_run()
    return None if run is None or name in _calling.get()[-1:] else run


def _shown_sync(function: Any, name: str) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        run = run_for(name)
        if run is None:
            return function(*args, **kwargs)
        from bylaw.contract.live.tools.calling import call_tool

        return call_tool(run, name, _arguments(function, args, kwargs), lambda: function(*args, **kwargs))

    return call


def _shown_async(function: Any, name: str) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        run = run_for(name)
        if run is None:
            return await function(*args, **kwargs)
        from bylaw.contract.live.tools.calling import acall_tool

        return await acall_tool(run, name, _arguments(function, args, kwargs), lambda: function(*args, **kwargs))

    return call


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, without `self`; a call that does not fit is the function's own error to raise."""
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
