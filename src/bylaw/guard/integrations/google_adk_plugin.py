"""Google ADK: a plugin, so that it holds for all agents of a runner, and for those that an `AgentTool` runs.

The plugin guards `run_async` of each tool that is called, which is after all callbacks that may change the arguments. A
pause is ADK's tool confirmation: an `adk_request_confirmation` call, whose payload names the review. The response
`{"confirmed": true}` approves it, with `"payload": {"arguments": …}` as an edit, and `{"confirmed": false}` rejects it.
Tools that run in the model's service, such as Google Search, cannot be decided.
"""

from __future__ import annotations

from inspect import isasyncgen
from typing import Any

from google.adk.plugins.base_plugin import BasePlugin

from bylaw.guard.integrations.calls import Answer, Calls, Recorded
from bylaw.guard.model import Call, Decision
from bylaw.guard.tools import NotItsTool
from bylaw.model.rule import Action


class Suspended(Exception):
    """The tool itself asks for a confirmation, and runs again later."""


class ADKCalls(Calls):
    suspends = (Suspended,)


class GuardPlugin(BasePlugin):  # type: ignore[misc]
    """`Runner(app_name=…, agent=…, plugins=[bylaw.integrations.google_adk(guard)])`."""

    def __init__(self, calls: ADKCalls) -> None:
        super().__init__(name=f"bylaw-{id(self)}")
        self.calls = calls

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> None:
        """Put the guard around the tool itself. Callbacks that run after this one may still change the arguments."""
        guards = tool.__dict__.setdefault("_bylaw", [])
        if self in guards:
            return
        guards.append(self)
        unguarded = tool.run_async

        async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
            if self not in tool_context._invocation_context.plugin_manager.plugins:  # of another runner
                return await unguarded(args=args, tool_context=tool_context)
            return await self._call(tool, args, tool_context, unguarded)

        run_async.unguarded = unguarded  # type: ignore[attr-defined]
        object.__setattr__(tool, "run_async", run_async)

    async def _call(self, tool: Any, args: dict[str, Any], context: Any, unguarded: Any) -> Any:
        calls, id = self.calls, context.function_call_id
        attempt = calls.attempt(tool.name, args, id, context, context.session.id)
        decision = await calls.adecide(attempt, _answer(context.tool_confirmation, tool.name))
        if decision.action is Action.PAUSE and decision.review is not None:
            return _pause(context, decision)

        async def invoke(call: Call) -> Any:
            run = unguarded if call.tool == tool.name else await _other(context, call.tool)
            result = await run(args=call.arguments, tool_context=context)
            if id in context.actions.requested_tool_confirmations:
                raise Suspended(result)
            return result

        def read(result: Any) -> Recorded:
            return (None if isasyncgen(result) else result), None  # a stream of a live run is still to come

        try:
            return await calls.arun(attempt, decision, invoke, read, lambda reason: {"error": reason})
        except Suspended as waiting:
            return waiting.args[0]

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        if llm_response.partial:  # the whole response follows
            return
        parts = (llm_response.content.parts or ()) if llm_response.content else ()
        text = "\n".join(part.text for part in parts if part.text and not part.thought)
        await self.calls.aobserve(
            text,
            calls=any(part.function_call for part in parts),
            model=llm_response.model_version,
            context=callback_context,
            default=callback_context.session.id,
        )


def _answer(confirmation: Any, tool: str) -> Answer | None:
    if confirmation is None:
        return None
    about = confirmation.payload if isinstance(confirmation.payload, dict) else {}
    arguments, note = about.get("arguments"), about.get("note")
    call = Call(str(about.get("tool", tool)), arguments) if isinstance(arguments, dict) else None
    return Answer(approved=confirmation.confirmed is True, by=about.get("by"), note=note, call=call)


def _pause(context: Any, decision: Decision) -> dict[str, Any]:
    about = {"review": decision.review, "reason": decision.reason, "notes": [*decision.notes]}
    context.request_confirmation(hint=decision.reason, payload=about)
    context.actions.skip_summarization = True
    return {"error": f"{decision.reason}; the call waits for a person: {decision.review}"}


async def _other(context: Any, name: str) -> Any:
    """Another tool of the agent, which was approved in the place of the one that was called."""
    agent = context._invocation_context.agent
    tool = next((one for one in await agent.canonical_tools(context) if one.name == name), None)
    if tool is None:
        raise NotItsTool(name)
    return getattr(tool.run_async, "unguarded", tool.run_async)
