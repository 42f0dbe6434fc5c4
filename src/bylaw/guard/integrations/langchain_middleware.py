"""LangChain and LangGraph: a middleware for `create_agent`, or `wrap_tool_call` and `awrap_tool_call` of a `ToolNode`.

A pause is an `interrupt`, whose value names the review; it needs a checkpointer. The graph goes on with
`Command(resume={"review": …, "type": "approve" | "edit" | "reject", …})`, or with any other value after the review was
answered elsewhere. The answer names its review, because a `ToolNode` runs several calls in one task, and LangGraph
hands out answers by their order.

LangGraph runs a task from its beginning when it resumes it. Its calls are decided and made once nevertheless.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from bylaw.guard.integrations.calls import MOST_WAITING, Answer, Calls, Recorded, keep_recent, read_answer
from bylaw.guard.model import Attempt, Call, Decision
from bylaw.guard.tools import NotItsTool
from bylaw.model.rule import Action

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError:  # LangGraph alone

    class AgentMiddleware:  # type: ignore[no-redef]
        pass


class LangChainCalls(Calls):
    suspends = (GraphBubbleUp,)


class GuardMiddleware(AgentMiddleware):  # type: ignore[misc]
    """`create_agent(model, tools, middleware=[bylaw.integrations.langchain(guard)])`."""

    def __init__(self, calls: LangChainCalls) -> None:
        super().__init__()
        self.calls = calls
        self.tools: list[Any] = []
        self._made: dict[tuple[Any, ...], Any] = {}
        """what the model was told about calls, for a task that runs again"""
        self._busy: dict[tuple[Any, ...], asyncio.Event] = {}
        """calls that asyncio runs, and whether they wait for a person"""

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        attempt, place = self._attempt(request)
        if place in self._made:
            return self._made[place]
        decision = self.calls.decide(attempt)
        while decision.action is Action.PAUSE:
            decision = self.calls.decide(attempt, self._ask(attempt, decision))
        return self.calls.run(attempt, decision, *self._around(request, handler, attempt, place))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        attempt, place = self._attempt(request)
        if place in self._made:
            return self._made[place]
        is_idle = self._busy[place] = asyncio.Event()
        try:
            decision = await self.calls.adecide(attempt, hold=True)
            while decision.action is Action.PAUSE:
                is_idle.set()
                await self._let_others_finish(place)
                decision = await self.calls.adecide(attempt, self._ask(attempt, decision), hold=True)
            return await self.calls.arun(attempt, decision, *self._around(request, handler, attempt, place))
        finally:
            self._busy.pop(place, None)
            is_idle.set()

    async def _let_others_finish(self, place: tuple[Any, ...]) -> None:
        """An interrupt cancels the other calls of the task wherever they are, and then nobody knows what has run."""
        await asyncio.sleep(0)  # now all of them have begun
        for other, is_idle in list(self._busy.items()):
            if other[:3] == place[:3]:
                await is_idle.wait()

    def after_model(self, state: Any, runtime: Any) -> None:
        """Passes on what the model has said; in a graph of your own, call it after the model with the new state."""
        message = state["messages"][-1]
        if isinstance(message, AIMessage):
            self.calls.observe(
                str(message.text),
                calls=bool(message.tool_calls),
                model=message.response_metadata.get("model_name"),
                context=runtime,
                default=_thread(runtime),
            )

    def _attempt(self, request: Any) -> tuple[Attempt, tuple[Any, ...]]:
        call, runtime = request.tool_call, request.runtime
        attempt = self.calls.attempt(call["name"], call["args"], call["id"], runtime, _thread(runtime))
        info, call_json = runtime.execution_info, json.dumps([call["name"], attempt.arguments], default=str)
        task = getattr(info, "task_id", None), getattr(info, "checkpoint_id", None)
        return attempt, (attempt.session, *task, call["id"], call_json)  # some models use an id for several calls

    def _ask(self, attempt: Attempt, decision: Decision) -> Answer | None:
        """The answer to this call; the answer to another one is written into its review."""
        about = {"review": decision.review, "tool": attempt.tool, "arguments": attempt.arguments}
        given = interrupt({**about, "reason": decision.reason, "notes": list(decision.notes)})
        if not isinstance(given, dict) or not isinstance(given.get("review"), str):
            return None
        answer = read_answer(given.get("type"), given, attempt.tool)
        if given["review"] == decision.review:
            return answer
        if answer is not None and given["review"] in self.calls.reviews_of(attempt):
            self.calls.answer(given["review"], answer)
        return None

    def _around(self, request: Any, handler: Any, attempt: Attempt, place: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """How the call is made, what is recorded of its result, and what the model is told in place of one."""

        def read(result: Any) -> Recorded:
            """A tool may return a `Command` instead of a message."""
            self._keep(place, result)
            is_message = isinstance(result, ToolMessage)
            return (result.content, result.status == "error") if is_message else (str(result), None)

        def refuse(text: str) -> Any:
            call = request.tool_call
            return self._keep(place, ToolMessage(text, name=call["name"], tool_call_id=call["id"], status="error"))

        return lambda call: handler(_replace_call(request, attempt, call)), read, refuse

    def _keep(self, place: tuple[Any, ...], result: Any) -> Any:
        if place[1] is not None:  # without a task, nothing tells one call from the next with its id
            keep_recent(self._made, place, result, MOST_WAITING)
        return result


def _replace_call(request: Any, attempt: Attempt, call: Call) -> Any:
    """The request with the call that may run."""
    tool = request.tool
    if call.tool != attempt.tool:
        tool = next((one for one in request.runtime.tools if one.name == call.tool), None)
        if tool is None:
            raise NotItsTool(call.tool)
    return request.override(tool_call={**request.tool_call, "name": call.tool, "args": call.arguments}, tool=tool)


def _thread(runtime: Any) -> str | None:
    return getattr(getattr(runtime, "execution_info", None), "thread_id", None)
