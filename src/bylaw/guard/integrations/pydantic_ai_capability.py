"""Pydantic AI: a capability that wraps the agent's toolset, so that the guard sees the arguments that really run.

A pause raises `ApprovalRequired`: the run ends with `DeferredToolRequests`, whose metadata names the review. It goes on
with `ToolApproved`, whose `override_args` are an edit, or with `ToolDenied`. A block is `ToolFailed`, which costs the
tool no retry.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.toolsets import WrapperToolset

from bylaw.guard.integrations.calls import Answer, Calls, Recorded, running
from bylaw.guard.model import Attempt, Call, Decision
from bylaw.guard.tools import CannotRun, NotItsTool, is_same_json, plain_json
from bylaw.model.rule import Action


class PydanticAICalls(Calls):
    suspends = (ApprovalRequired, CallDeferred)


_output_call: ContextVar[tuple[Attempt, Decision] | None] = ContextVar("bylaw output function", default=None)
"""the output function that runs"""


@dataclass
class GuardedToolset(WrapperToolset[Any]):  # type: ignore[misc]
    calls: PydanticAICalls

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        calls = self.calls
        attempt = calls.attempt(name, tool_args, ctx.tool_call_id, ctx, ctx.conversation_id)
        decision = await calls.adecide(attempt, _answer(ctx))
        if decision.action is Action.PAUSE:
            raise ApprovalRequired({"review": decision.review, "reason": decision.reason, "notes": [*decision.notes]})

        async def invoke(call: Call) -> Any:
            if call.tool == name and is_same_json(call.arguments, attempt.arguments):
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)
            other = ctx.tool_manager.tools.get(call.tool)
            if other is None:
                raise NotItsTool(call.tool)
            try:
                arguments = other.args_validator.validate_python(call.arguments)
            except ValidationError as why:
                raise CannotRun(f"the call that was approved does not fit `{call.tool}`: {why}") from None
            return await self.wrapped.call_tool(call.tool, arguments, replace(ctx, tool_name=call.tool), other)

        return await calls.arun(attempt, decision, invoke, _read, _refuse)


@dataclass(init=False)
class GuardCapability(AbstractCapability[Any]):  # type: ignore[misc]
    """`Agent(model, capabilities=[bylaw.integrations.pydantic_ai(guard)])`."""

    def __init__(self, calls: PydanticAICalls) -> None:
        self.calls = calls

    def get_ordering(self) -> CapabilityOrdering:
        """Next to the tools: nothing may change the arguments after they were judged."""
        return CapabilityOrdering(position="innermost")

    def get_wrapper_toolset(self, toolset: Any) -> GuardedToolset:
        return GuardedToolset(toolset, self.calls)

    async def before_output_process(self, ctx: Any, *, output_context: Any, output: Any) -> Any:
        """An output function is a tool whose result ends the run. Here every other capability has changed its arguments
        already. Pydantic AI cannot defer it, so a pause waits."""
        if not output_context.has_function:
            return output
        calls = self.calls
        if ctx.partial_output:
            raise ModelRetry("the output function runs when the output is complete")
        name = output_context.function_name or getattr(output_context.tool_call, "tool_name", None) or "output"
        given = _output_arguments(output_context, output)
        attempt = calls.attempt(name, given, ctx.tool_call_id, ctx, ctx.conversation_id)
        attempt, decision = await calls.asettle(attempt)
        if not decision:
            raise ModelRetry(calls.refusal(decision))
        assert decision.call is not None
        if decision.call.tool != name or not is_same_json(decision.call.arguments, attempt.arguments):
            await calls.guard.in_thread(calls.guard.release, decision)
            raise ModelRetry(calls.refusal(decision, "another call was approved in place of this output function"))
        calls.begin(attempt, decision)
        _output_call.set((attempt, decision))
        return output

    async def wrap_output_process(self, ctx: Any, *, output_context: Any, output: Any, handler: Any) -> Any:
        token, above = _output_call.set(None), running.get()
        try:
            result = await handler(output)
        except BaseException as problem:
            if (made := _output_call.get()) is not None:
                self.calls._record_failure(*made, problem)
            raise
        else:
            if (made := _output_call.get()) is not None:
                self.calls._report(await self.calls.guard.arecord(made[1], plain_json(result)))
            return result
        finally:
            running.set(above)
            _output_call.reset(token)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Pydantic AI answers a denied call itself, so the review learns of it here."""
        last = request_context.messages[-1] if request_context.messages else None
        for part in last.parts if isinstance(last, ModelRequest) else ():
            if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                await self.calls.areject(part.tool_call_id, str(part.content), ctx, ctx.conversation_id)
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        await self.calls.aobserve(
            response.text or "",
            calls=bool(response.tool_calls),
            model=response.model_name,
            context=ctx,
            default=ctx.conversation_id,
        )
        return response


def _output_arguments(about: Any, output: Any) -> Any:
    """The arguments by name: a function with one parameter gets its value alone."""
    value = plain_json(output)
    if isinstance(value, dict):
        return value
    named = [*((about.object_def and about.object_def.json_schema.get("properties")) or ())]
    return {named[0] if len(named) == 1 else "output": value}


def _answer(ctx: Any) -> Answer | None:
    """The approval with which the run was resumed; `metadata` of `DeferredToolResults` may say who has given it."""
    if not ctx.tool_call_approved:
        return None
    about = ctx.tool_call_metadata if isinstance(ctx.tool_call_metadata, dict) else {}
    return Answer(approved=True, by=about.get("by"), note=about.get("note"))


def _refuse(reason: str) -> Any:
    raise ToolFailed(reason) from None


def _read(result: Any) -> Recorded:
    return getattr(result, "return_value", result), None
