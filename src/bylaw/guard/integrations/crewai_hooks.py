"""CrewAI: hooks before and after each tool call, for all crews of the process or for one.

CrewAI ignores every exception of a hook but `HookAborted`, so that a guard which fails would let the call run: here
everything that is raised becomes one. The hook after a call also runs for a call that was blocked; it tells the model
why, and ends the crew if the session is over. A call that pauses waits for `wait` seconds. CrewAI runs the tool itself,
so a call cannot become one of another tool.
"""

from __future__ import annotations

from contextvars import Token
from copy import deepcopy
from typing import Any

from crewai.hooks.dispatch import HookAborted, InterceptionPoint, register, unregister

from bylaw.guard.integrations.calls import MOST_WAITING, Calls, Running, running
from bylaw.guard.model import Decision, Denied
from bylaw.model.guard_policy import Action


class CrewDenied(Denied, HookAborted):  # type: ignore[misc]
    """`Denied` as it leaves a crew."""

    def __init__(self, decision: Decision, why: str | None = None) -> None:
        Denied.__init__(self, decision, why)
        self.source = "bylaw"


class GuardHooks:
    """`bylaw.integrations.crewai(guard)`, or `crewai(guard, crew)`; also a context, which removes the hooks."""

    def __init__(self, calls: Calls, crew: Any = None) -> None:
        self.calls, self._crew = calls, crew
        self._open: dict[int, tuple[Any, Decision | str | Exception, Token[Running | None] | None]] = {}
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
            found = self._decided(context)
            token = self.calls.begin(*found) if isinstance(found, tuple) else None
            self._keep(given, found[1] if isinstance(found, tuple) else found, token)
        except Exception as problem:
            self._keep(given, problem, None)
            raise HookAborted(f"the guard failed: {problem}", source="bylaw") from problem
        if not isinstance(found, tuple):
            raise HookAborted(str(found), source="bylaw")

    def _decided(self, context: Any) -> Any:
        """The attempt and its decision if the call may run, or else why not."""
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
        return attempt, decision

    def after(self, context: Any) -> str | None:
        known = self._open.pop(id(context.tool_input), None)
        if known is None or known[0] is not context.tool_input:
            return None
        _, found, token = known
        if token is not None:
            running.reset(token)
        if isinstance(found, CrewDenied):
            raise found
        if isinstance(found, Exception):
            raise HookAborted(f"the guard failed: {found}", source="bylaw") from found
        if isinstance(found, str):
            return found
        self.calls.record(found, context.raw_tool_result, None)
        return None

    def said(self, context: Any) -> None:
        if self._is_mine(context) and isinstance(context.response, str):
            self.calls.observe(context.response, calls=False, model=None, context=context, default=None)

    def _is_mine(self, context: Any) -> bool:
        crew = self._crew
        return crew is None or getattr(context, "crew", None) is crew or getattr(context, "agent", None) in crew.agents

    def _keep(self, given: Any, found: Any, token: Token[Running | None] | None) -> None:
        self._open[id(given)] = (given, found, token)
        if len(self._open) > MOST_WAITING:
            self._open.pop(next(iter(self._open)), None)
