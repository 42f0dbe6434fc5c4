"""Tools of the OpenAI Agents SDK.

The seam is `FunctionTool.on_invoke_tool`, the attribute through which the SDK calls every function tool: in a run, it
reads as a call that meets the run's faults. What a fault raises goes to the tool's own failure function, as an error of
the tool itself does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bylaw.contract.live.tools.calling import acall_tool
from bylaw.contract.live.tools.decorator import run_for
from bylaw.wire.patches.patches import Patches

_NAME = "on_invoke_tool"


def patch(module: Any, patches: Patches) -> None:
    """`module` is agents.tool; another module of that name has no function tools and is left alone."""
    kind = getattr(module, "FunctionTool", None)
    if kind is not None and hasattr(kind, "__dataclass_fields__"):
        patches.add(kind, _NAME, _Seam())


class _Seam:
    """Stands before the attribute of the objects, which stays in their own dictionaries."""

    def __get__(self, tool: Any, _owner: Any = None) -> Any:
        if tool is None or _NAME not in tool.__dict__:
            raise AttributeError(_NAME)
        invoke = tool.__dict__[_NAME]
        if run_for(tool.name) is None:
            return invoke
        held = tool.__dict__.get("_bylaw_invoke")
        if held is None or held.tool is not tool or held.inner is not invoke:
            held = tool.__dict__["_bylaw_invoke"] = _Invoke(tool, invoke)
        return held

    def __set__(self, tool: Any, value: Any) -> None:
        tool.__dict__[_NAME] = value


class _Invoke:
    """Like the SDK's own invoker in all that is asked of it."""

    def __init__(self, tool: Any, inner: Any) -> None:
        self.tool = tool
        self.inner = inner

    async def __call__(self, ctx: Any, input: str) -> Any:
        run = run_for(self.tool.name)
        if run is None:
            return await self.inner(ctx, input)
        is_reached = False

        async def reached() -> Any:
            nonlocal is_reached
            is_reached = True
            return await self.inner(ctx, input)

        try:
            return await acall_tool(
                run, self.tool.name, _arguments(input), reached, call_id=getattr(ctx, "tool_call_id", None)
            )
        except Exception as error:
            if is_reached:  # the tool's own, which its own invoker has seen to
                raise
            return await self._handled(ctx, error)

    async def _handled(self, ctx: Any, error: Exception) -> Any:
        from agents import tool as module

        handle = getattr(module, "maybe_invoke_function_tool_failure_error_function", None)
        handled = None if handle is None else await handle(function_tool=self.tool, context=ctx, error=error)
        if handled is None:
            raise error
        return handled

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _arguments(text: str) -> Any:
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {"input": text}
