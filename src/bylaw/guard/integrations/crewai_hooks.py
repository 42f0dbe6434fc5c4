"""CrewAI: hooks before and after each tool call, for all crews of the process or for one.

CrewAI ignores every exception of a hook but `HookAborted`, so that a guard which fails would let the call run: here
everything that is raised becomes one. The hook after a call also runs for a call that was blocked; it tells the model
why, and ends the crew if the session is over. A call that pauses waits for `wait` seconds. CrewAI runs the tool itself,
so a call cannot become one of another tool. Where an agent writes its calls as text, CrewAI runs a tool that raises an
exception up to six times: each time is an attempt of its own.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from copy import deepcopy
from typing import Any

from crewai.hooks.dispatch import HookAborted, InterceptionPoint, register, unregister
from msgspec.structs import replace

from bylaw.guard.integrations.calls import MOST_WAITING, Calls, RunningCall, keep_recent, running
from bylaw.guard.model import Attempt, Decision, Denied
from bylaw.guard.tools import is_same_json
from bylaw.model.rule import Action


class CrewDenied(Denied, HookAborted):  # type: ignore[misc]
    """`Denied` as it leaves a crew."""

    def __init__(self, decision: Decision, why: str | None = None) -> None:
        Denied.__init__(self, decision, why)
        self.source = "bylaw"


class _AllowedCall:
    """A call that may run once."""

    def __init__(self, attempt: Attempt, decision: Decision) -> None:
        self.attempt, self.decision, self.is_used = attempt, decision, False


_made: ContextVar[_AllowedCall | None] = ContextVar("bylaw call of a crew", default=None)


class GuardHooks:
    """`bylaw.integrations.crewai(guard)`, or `crewai(guard, crew)`; also a context, which removes the hooks."""

    def __init__(self, calls: Calls, crew: Any = None) -> None:
        self.calls, self._crew = calls, crew
        self._open: dict[int, tuple[Any, _AllowedCall | str | Exception, Token[RunningCall | None] | None]] = {}
        """calls between their two hooks, by the identity of their arguments, which both hooks are given"""
        self._hooks = {
            InterceptionPoint.PRE_TOOL_CALL: self.before,
            InterceptionPoint.POST_TOOL_CALL: self.after,
            InterceptionPoint.POST_MODEL_CALL: self.said,
        }
        for point, hook in self._hooks.items():
            register(point, hook)

    def remove(self) -> None:
        for point, hook in self._hooks.items():
            unregister(point, hook)

    def __enter__(self) -> GuardHooks:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def before(self, context: Any) -> None:
        if not self._is_mine(context):
            return
        given = context.tool_input
        try:
            found, token = self._decide_call(context), None
            if isinstance(found, _AllowedCall):
                self._limit_to_one_run(context.tool)
                token = self.calls.begin(found.attempt, found.decision)
                _made.set(found)
            keep_recent(self._open, id(given), (given, found, token), MOST_WAITING)
        except Exception as problem:
            keep_recent(self._open, id(given), (given, problem, None), MOST_WAITING)
            raise HookAborted(f"the guard failed: {problem}", source="bylaw") from problem
        if not isinstance(found, _AllowedCall):
            raise HookAborted(str(found), source="bylaw")

    def _decide_call(self, context: Any) -> _AllowedCall | str | Exception:
        """The call if it may run, or else why not."""
        calls, given = self.calls, context.tool_input
        attempt, decision = calls.settle(calls.attempt(context.tool_name, given, None, context, None))
        if decision.action is Action.TERMINATE:
            return CrewDenied(decision)
        if decision.call is None or not decision:
            return str(Denied(decision))
        if decision.call.tool != attempt.tool:
            calls.guard.release(decision)
            return f"`{decision.call.tool}` was approved in its place, which the model has to call itself"
        if not given and decision.call.arguments:  # CrewAI replaces an empty mapping for its hooks, and runs the other
            calls.guard.release(decision)
            return "another call was approved in its place, which the model has to make itself"
        given.clear()
        given.update(decision.call.arguments)
        context.tool_input = deepcopy(given)  # what later hooks change is not what runs
        return _AllowedCall(attempt, decision)

    def _limit_to_one_run(self, tool: Any) -> None:
        """Let the tool run once for each decision."""
        if tool is None or hasattr(tool.invoke, "bylaw"):
            return
        invoke, ainvoke = tool.invoke, tool.ainvoke

        def invoked(*args: Any, **named: Any) -> Any:
            self._use(_made.get())
            return invoke(*args, **named)

        async def ainvoked(*args: Any, **named: Any) -> Any:
            await self.calls.guard.in_thread(self._use, _made.get())
            return await ainvoke(*args, **named)

        invoked.bylaw = True  # type: ignore[attr-defined]
        object.__setattr__(tool, "invoke", invoked)
        object.__setattr__(tool, "ainvoke", ainvoked)

    def _use(self, made: _AllowedCall | None) -> None:
        """Raises Denied if the tool has run before, and may not run again."""
        if made is None or not made.is_used:
            if made is not None:
                made.is_used = True
            return
        self.calls.record(made.decision, "the tool has raised an exception, and is called again", True)
        _, made.decision = self.calls.settle(replace(made.attempt, call_id=None))
        call = made.decision.call
        if call is None or not made.decision or not is_same_json(call.arguments, made.attempt.arguments or {}):
            raise Denied(made.decision)

    def after(self, context: Any) -> str | None:
        known = self._open.pop(id(context.tool_input), None)
        if known is None or known[0] is not context.tool_input:
            return None
        _, found, token = known
        if token is not None:
            running.reset(token)
            _made.set(None)
        if isinstance(found, CrewDenied):
            raise found
        if isinstance(found, Exception):
            raise HookAborted(f"the guard failed: {found}", source="bylaw") from found
        if isinstance(found, str):
            return found
        if found.decision:  # or else it was recorded before it was denied again
            self.calls.record(found.decision, context.raw_tool_result, None)
        return None

    def said(self, context: Any) -> None:
        if self._is_mine(context) and isinstance(context.response, str):
            self.calls.observe(context.response, calls=False, model=None, context=context, default=None)

    def _is_mine(self, context: Any) -> bool:
        crew = self._crew
        return crew is None or getattr(context, "crew", None) is crew or getattr(context, "agent", None) in crew.agents
