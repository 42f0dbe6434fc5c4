"""How an agent of any kind is asked: one text in, one value out."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from bylaw.contract.live_agent import AgentUnreachable


class Target(Struct, frozen=True):
    ask: Callable[[str], Any]
    is_async: bool
    """whether `ask` returns something to await"""
    framework: str | None = None
    """the framework whose model calls are seen; None: a plain function or object"""


def target_of(agent: Any, address: str) -> Target:
    for kind in (_pydantic_ai, _openai_agents, _langchain, _invoker, _function):
        target = kind(agent)
        if target is not None:
            return target
    type_name = type(agent).__name__
    raise AgentUnreachable(f"`{address}` is neither a function nor an object with `invoke`, but of type `{type_name}`")


def _pydantic_ai(agent: Any) -> Target | None:
    module = sys.modules.get("pydantic_ai.agent")
    if module is None or not isinstance(agent, module.AbstractAgent):
        return None
    return Target(agent.run, True, "pydantic_ai")


def _openai_agents(agent: Any) -> Target | None:
    module = sys.modules.get("agents")
    kind = getattr(module, "Agent", None)
    if kind is None or not hasattr(module, "Runner") or not isinstance(agent, kind):
        return None
    runner = module.Runner  # type: ignore[union-attr]  # the line above asked for it
    return Target(lambda prompt: runner.run(agent, prompt), True, "openai_agents")


def _langchain(agent: Any) -> Target | None:
    module = sys.modules.get("langchain_core.runnables")
    if module is None or not isinstance(agent, module.Runnable):
        return None
    return Target(lambda prompt: agent.ainvoke(_langchain_input(agent, prompt)), True, "langchain")


def _langchain_input(agent: Any, prompt: str) -> Any:
    """What the runnable says it takes: a conversation, a field of a mapping, or the text itself."""
    schema = _input_schema(agent)
    fields = schema.get("properties") or {}
    if "messages" in fields:
        return {"messages": [("user", prompt)]}
    if "input" in fields:
        return {"input": prompt}
    required = [name for name in schema.get("required") or fields if name in fields]
    if schema.get("type") == "object" and len(required) == 1:
        return {required[0]: prompt}
    return prompt


def _input_schema(agent: Any) -> dict[str, Any]:
    try:
        schema = agent.get_input_jsonschema()
    except Exception:  # a runnable over arbitrary types has no schema
        return {}
    root = schema.get("$ref", "").removeprefix("#/$defs/")
    return schema.get("$defs", {}).get(root, schema) if isinstance(schema, dict) else {}


def _invoker(agent: Any) -> Target | None:
    invoke, ainvoke = getattr(agent, "invoke", None), getattr(agent, "ainvoke", None)
    if callable(invoke):
        return Target(invoke, inspect.iscoroutinefunction(invoke))
    return Target(ainvoke, True) if callable(ainvoke) else None


def _function(agent: Any) -> Target | None:
    if not callable(agent):
        return None
    call = getattr(agent, "__call__", agent)  # noqa: B004  # an object with an async __call__ is async
    is_async = inspect.iscoroutinefunction(inspect.unwrap(agent)) or inspect.iscoroutinefunction(call)
    return Target(agent, is_async)
