"""smolagents: an agent whose tools are called through the guard, and the agents that it manages.

smolagents has no hook before a call. A `ToolCallingAgent` calls all of its tools in `execute_tool_call`; a `CodeAgent`
hands them to the interpreter of its code, in which a call that may not run raises `ToolDenied`, so that the code does
not go on as if it had. A call that pauses waits for `wait` seconds. `final_answer` is no call, but what the agent says.
Python that a `CodeAgent` writes without calling a tool is not decided. Code that runs elsewhere cannot be guarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import copy_context
from typing import Any

from smolagents import ActionStep, CodeAgent, LocalPythonExecutor, ToolCallingAgent

from bylaw.guard.integrations.calls import Calls, Recorded
from bylaw.guard.model import Call, Denied
from bylaw.guard.tools import CannotRun, NotItsTool, is_same_json

FINAL = "final_answer"


class ToolDenied(Exception):
    """What code reads in place of a result."""


def guard_agent(calls: Calls, agent: Any) -> Any:
    """The same object under the guard."""
    if calls.is_known(getattr(agent, "_bylaw", None)):
        return agent
    if isinstance(agent, CodeAgent):
        if not isinstance(agent.python_executor, LocalPythonExecutor):
            raise TypeError("no guard can decide calls of code that runs elsewhere: use executor_type='local'")
        _GuardedCode(calls, agent)
    elif isinstance(agent, ToolCallingAgent):
        _GuardedCalls(calls, agent)
    else:
        raise TypeError(f"agent={agent!r:.80}: expected a ToolCallingAgent or a CodeAgent")
    agent._bylaw = calls
    for managed in agent.managed_agents.values():
        guard_agent(calls, managed)
    return agent


class _GuardedCalls:
    """The calls of a `ToolCallingAgent`."""

    def __init__(self, calls: Calls, agent: Any) -> None:
        self.calls, self.agent = calls, agent
        self._execute, self._process = agent.execute_tool_call, agent.process_tool_calls
        agent.execute_tool_call, agent.process_tool_calls = self.execute, self.process

    def process(self, message: Any, step: Any) -> Any:
        _observe(self.calls, self.agent, message.content, calls=True)
        return self._process(message, step)

    def execute(self, name: str, given: Any) -> Any:
        agent = self.agent
        if name == FINAL:
            result = self._execute(name, given)
            _observe(self.calls, agent, result, calls=False)
            return result
        tools = {**agent.tools, **agent.managed_agents}
        arguments = agent._substitute_state_variables(_name_arguments(tools.get(name), given))
        attempt = self.calls.attempt(name, arguments, None, agent, None)

        def invoke(call: Call) -> Any:
            if call.tool != name and call.tool not in {**agent.tools, **agent.managed_agents}:
                raise NotItsTool(call.tool)
            made = arguments if is_same_json(call.arguments, attempt.arguments) else call.arguments
            if agent._substitute_state_variables(made) != made:  # would become another call
                raise CannotRun("an argument is the name of a variable of the agent")
            return self._execute(call.tool, made)

        return self.calls.call(attempt, invoke, _read, str)


class _GuardedCode:
    """The calls in the code of a `CodeAgent`."""

    def __init__(self, calls: Calls, agent: Any) -> None:
        self.calls, self.agent = calls, agent
        self.problem: Exception | None = None
        """what has to end the agent; its code catches every exception"""
        executor = agent.python_executor
        self._send = executor.send_tools
        executor.send_tools = self.send
        agent.step_callbacks.register(ActionStep, self.after)

    def send(self, tools: Mapping[str, Any]) -> None:
        """Hand the guarded tools to the interpreter. The agent calls this at the beginning of each run."""
        self.problem = None
        context = copy_context()  # the interpreter runs in another thread
        guarded = {
            name: tool if name == FINAL else GuardedTool(self, name, tool, tools, context)
            for name, tool in tools.items()
        }
        self._send(guarded)

    def after(self, step: Any, agent: Any) -> None:
        is_final = step.is_final_answer
        _observe(self.calls, self.agent, step.action_output if is_final else step.model_output, calls=not is_final)
        if self.problem is not None:
            raise self.problem


class GuardedTool:
    """A tool as the code of a `CodeAgent` calls it."""

    __slots__ = ("__call",)

    def __init__(self, guarded: _GuardedCode, name: str, tool: Any, tools: Mapping[str, Any], context: Any) -> None:
        calls, agent = guarded.calls, guarded.agent

        def decided(given: dict[str, Any]) -> Any:
            failed: list[BaseException] = []

            def invoke(call: Call) -> Any:
                other = tools.get(call.tool)
                if other is None:
                    raise NotItsTool(call.tool)
                try:
                    return other(
                        **(given if call.tool == name and is_same_json(call.arguments, seen) else call.arguments)
                    )
                except BaseException as problem:
                    failed.append(problem)
                    raise

            try:
                attempt = calls.attempt(name, given, None, agent, None)
                seen = attempt.arguments
                return calls.call(attempt, invoke, _read, _refuse)
            except ToolDenied:
                raise
            except Exception as problem:
                if problem not in failed or isinstance(problem, Denied):  # of the guard, not of the tool
                    guarded.problem = problem
                raise

        def call(*args: Any, **named: Any) -> Any:
            return context.copy().run(decided, {**_name_arguments(tool, *args), **named})

        self.__call = call

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.__call(*args, **named)


def _name_arguments(tool: Any, *args: Any) -> dict[str, Any]:
    """Arguments by position under their names, as `Tool` itself takes them."""
    inputs = getattr(tool, "inputs", None) or {"task": None}
    if len(args) == 1 and isinstance(args[0], dict) and (tool is None or all(key in inputs for key in args[0])):
        return dict(args[0])
    if len(args) > len(inputs):
        raise ToolDenied("the call has more arguments than the tool has names for them")
    return dict(zip(inputs, args, strict=False))


def _observe(guarding: Calls, agent: Any, said: Any, *, calls: bool) -> None:
    text = said if isinstance(said, str) else "" if said is None else str(said)
    guarding.observe(text, calls=calls, model=None, context=agent, default=None)


def _refuse(reason: str) -> Any:
    raise ToolDenied(reason)


def _read(result: Any) -> Recorded:
    return result, None
