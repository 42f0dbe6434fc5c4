"""LangChain's tools, and with them LangGraph's.

The seam is `BaseTool.run` and `arun`, which every call of a tool passes, and inside them `_run` and `_arun`, which a
tool implements: raised there, a fault meets the tool's own `handle_tool_error` and whatever called it. The call is made
on a copy of the tool, so that calls at the same time do not meet each other's faults.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

from bylaw.contract.live.tools.calling import WHOLE, Lens, acall_tool, call_tool
from bylaw.contract.live.tools.decorator import run_for
from bylaw.wire.patches.patches import Patches


def patch(module: Any, patches: Patches) -> None:
    """`module` is langchain_core.tools.base."""
    patches.replace(module.BaseTool, "run", _sync)
    patches.replace(module.BaseTool, "arun", _async)


def _sync(original: Any) -> Any:
    @functools.wraps(original)
    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        live = run_for(self.name)
        if live is None:
            return original(self, tool_input, *args, **kwargs)
        inner = self._run

        @functools.wraps(inner)
        def _run(*values: Any, **named: Any) -> Any:
            return call_tool(
                live,
                self.name,
                _arguments(self, tool_input),
                lambda: inner(*values, **named),
                call_id=kwargs.get("tool_call_id"),
                lens=_lens(self),
            )

        return original(_with(self, "_run", _run), tool_input, *args, **kwargs)

    return run


def _async(original: Any) -> Any:
    @functools.wraps(original)
    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        live = run_for(self.name)
        if live is None:
            return await original(self, tool_input, *args, **kwargs)
        inner = self._arun

        @functools.wraps(inner)
        async def _arun(*values: Any, **named: Any) -> Any:
            return await acall_tool(
                live,
                self.name,
                _arguments(self, tool_input),
                lambda: inner(*values, **named),
                call_id=kwargs.get("tool_call_id"),
                lens=_lens(self),
            )

        return await original(_with(self, "_arun", _arun), tool_input, *args, **kwargs)

    return arun


def _with(tool: Any, name: str, method: Any) -> Any:
    clone = copy.copy(tool)
    object.__setattr__(clone, "__dict__", {**clone.__dict__, name: method})
    return clone


def _arguments(tool: Any, tool_input: Any) -> Any:
    """Without what the framework itself puts in, as state and stores."""
    if not isinstance(tool_input, dict):
        return {"input": tool_input}
    return {name: value for name, value in tool_input.items() if name not in tool._injected_args_keys}


def _lens(tool: Any) -> Lens:
    """What the model gets to read of a result: its content, not its artifact nor its envelope."""
    if tool.response_format != "content_and_artifact":
        return _MESSAGE
    return Lens(
        lambda result: result[0] if isinstance(result, tuple) and result else result,
        lambda result, said: (said, *result[1:]) if isinstance(result, tuple) and result else (said, None),
    )


def _is_message(result: Any) -> bool:
    from langchain_core.messages import BaseMessage

    return isinstance(result, BaseMessage)


_MESSAGE = Lens(
    lambda result: result.content if _is_message(result) else WHOLE.get(result),
    lambda result, said: result.model_copy(update={"content": said}) if _is_message(result) else said,
)
