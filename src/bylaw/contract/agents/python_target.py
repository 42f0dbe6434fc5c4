"""Loads a Python agent from `module:attribute`, and finds out how to ask it and which tools it has."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from msgspec import Struct

from bylaw.contract.agents.prompts import talk_to_function, talk_to_graph, talk_with_history
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.tools import marked_names
from bylaw.wire.values import one_line


@contextlib.contextmanager
def import_path(folder: Path) -> Iterator[None]:
    """Search modules in the folder before anywhere else."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the agent may have changed `sys.path` itself
            sys.path.remove(entry)


def load(address: str, folder: Path) -> Any:
    """The object at `module:attribute`. Output of an import goes to stderr, because stdout is for results."""
    module_name, colon, attribute = address.partition(":")
    if not colon or not module_name or not attribute:
        raise AgentUnreachable(f"`{address}` is not of the form `module:attribute`")
    module = load_module(module_name, folder)
    value: Any = module
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise AgentUnreachable(f"`{module_name}` has no `{attribute}`") from None
    return value


def load_module(name: str, folder: Path) -> Any:
    _unload_namesake(name.partition(".")[0], folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # importing runs the agent's own code
        raise AgentUnreachable(f"cannot import `{name}` from `{folder}`: {one_line(error)}") from error


def _unload_namesake(name: str, folder: Path) -> None:
    """Unload a module of the same name that was imported from another folder."""
    loaded = sys.modules.get(name)
    if loaded is None or name in sys.stdlib_module_names or name == "bylaw":
        return
    found = PathFinder.find_spec(name, [str(folder.resolve())])
    if found is None or found.origin is None or found.origin == getattr(loaded, "__file__", None):
        return
    for known in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
        del sys.modules[known]


def instance_of(value: Any, address: str) -> Any:
    """The agent itself: an object of a class, or the value as it is."""
    if not inspect.isclass(value):
        return value
    try:
        return value()
    except TypeError as error:
        raise AgentUnreachable(
            f"`{address}` is a class that needs arguments ({one_line(error)}); name a function or an object instead"
        ) from error
    except Exception as error:  # the agent's own code
        raise AgentUnreachable(f"cannot create an object of `{address}`: {one_line(error)}") from error


def call_factory(factory: Any, address: str) -> Any:
    """The agent that a factory makes. Raises AgentUnreachable."""
    if not callable(factory):
        raise AgentUnreachable(f"`{address}` is no function that makes an agent, as `factory: true` says")
    _refuse_context_manager(factory, address, "the agent")
    try:
        made = factory()
    except Exception as error:  # the agent's own code
        raise AgentUnreachable(f"the factory `{address}` failed: {one_line(error)}") from error
    if inspect.iscoroutine(made):
        made.close()
        raise AgentUnreachable(f"the factory `{address}` is async; name a function that returns the agent itself")
    return made


def _refuse_context_manager(function: Any, address: str, what: str) -> None:
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise AgentUnreachable(
            f"`{address}` yields {what}, as a context manager does; name a function that returns it, and close what it "
            "opens in `reset_function`"
        )


class Target(Struct, frozen=True):
    """How an agent is asked: one text in, one value out."""

    ask: Callable[[str], Any]
    is_async: bool
    """whether `ask` returns an awaitable"""
    framework: str | None = None
    """the framework, whose model calls can be seen; None: a plain function or object"""
    talk: Callable[[], Callable[[str], Any]] | None = None
    """starts a conversation: what it returns is asked one message after the other; None: there is no such way"""


class Setup(Struct, frozen=True):
    """The settings of the contract for calling a Python agent."""

    config: dict[str, Any] = {}
    deps: Callable[[Any], Any] | None = None
    """makes the dependencies for one run; takes the type that the agent states for them; may return an awaitable"""
    check_deps: Callable[[Any], None] | None = None
    """raises AgentUnreachable if the dependencies do not fit the type"""
    state: Callable[[str], Any] | None = None
    """makes the input from a prompt, for a graph with a state of its own"""

    async def arguments(self, name: str, kind: Any = None) -> dict[str, Any]:
        """The configuration, and the dependencies under the name that the framework has for them."""
        return {**self.config, **await self.made(name, kind)}

    async def made(self, name: str, kind: Any = None) -> dict[str, Any]:
        """The dependencies for one run under this name, if the contract gives any."""
        if self.deps is None:
            return {}
        made = self.deps(kind)
        return {name: await made if inspect.isawaitable(made) else made}


_PLAIN = Setup()


def target_of(agent: Any, address: str, setup: Setup = _PLAIN) -> Target:
    """Raises AgentUnreachable if the object cannot be asked."""
    pydantic_ai = sys.modules.get("pydantic_ai.agent")
    if pydantic_ai is not None and isinstance(agent, pydantic_ai.AbstractAgent):
        kind = getattr(agent, "deps_type", None)
        _check_takes(agent.run, setup.config, address)
        if setup.check_deps is not None:
            setup.check_deps(kind)

        async def run_pydantic_ai(prompt: str) -> Any:
            return await agent.run(prompt, **await setup.arguments("deps", kind))

        def continue_pydantic_ai(prompt: str, earlier: list[Any], **given: Any) -> Any:
            return agent.run(prompt, message_history=earlier, **given)

        talk = talk_with_history(continue_pydantic_ai, "all_messages", lambda: setup.arguments("deps", kind))
        return Target(run_pydantic_ai, True, "pydantic_ai", talk)
    openai_agents: Any = sys.modules.get("agents")
    if hasattr(openai_agents, "Runner") and isinstance(agent, getattr(openai_agents, "Agent", ())):
        run = openai_agents.Runner.run
        _check_takes(functools.partial(run, agent), setup.config, address)

        async def run_openai_agent(prompt: str) -> Any:
            return await run(agent, prompt, **await setup.arguments("context"))

        def continue_openai_agent(prompt: str, earlier: list[Any], **given: Any) -> Any:
            return run(agent, [*earlier, {"role": "user", "content": prompt}], **given)

        talk = talk_with_history(continue_openai_agent, "to_input_list", lambda: setup.arguments("context"))
        return Target(run_openai_agent, True, "openai_agents", talk)
    langchain = sys.modules.get("langchain_core.runnables")
    if langchain is not None and isinstance(agent, langchain.Runnable):
        return Target(
            lambda prompt: _ask_runnable(agent, prompt, setup), True, "langchain", _talk_to_runnable(agent, setup)
        )
    given = {**({"config": setup.config} if setup.config else {}), **({"deps": setup.deps} if setup.deps else {})}
    invoke, ainvoke = getattr(agent, "invoke", None), getattr(agent, "ainvoke", None)
    asked = next((one for one in (invoke, ainvoke, agent) if callable(one)), None)
    if asked is not None:
        call = getattr(asked, "__call__", asked)  # noqa: B004  # its __call__ may be async
        is_async = any(
            inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (inspect.unwrap(asked), call)
        )
        _check_takes(asked, given, address)

        def ask(prompt: str) -> Any:
            own = {**given, **({"deps": setup.deps(None)} if setup.deps else {})}
            state = prompt if setup.state is None else setup.state(prompt)
            return _await_deps(asked, state, own) if inspect.isawaitable(own.get("deps")) else asked(state, **own)

        is_plain = setup.state is None and not setup.deps
        started = talk_to_function(functools.partial(asked, **given)) if is_plain else None
        return Target(ask, is_async or asked is ainvoke, None, started)
    type_name = type(agent).__name__
    raise AgentUnreachable(f"`{address}` is neither a function nor an object with `invoke`, but of type `{type_name}`")


async def _await_deps(asked: Callable[..., Any], state: Any, given: dict[str, Any]) -> Any:
    answer = asked(state, **{**given, "deps": await given["deps"]})
    return await answer if inspect.isawaitable(answer) else answer


def _check_takes(function: Any, given: Mapping[str, Any], address: str) -> None:
    """Raise AgentUnreachable for a function that does not take what the contract gives it."""
    try:
        inspect.signature(function).bind("prompt", **given)
    except TypeError as error:
        if given:
            raise AgentUnreachable(f"`{address}` does not take what the contract gives it: {one_line(error)}") from None
        if not inspect.signature(function).parameters:
            raise AgentUnreachable(
                f"`{address}` takes no prompt; write `factory: true` if it is a function that makes the agent"
            ) from None
    except ValueError:
        return  # a function without a signature


async def _ask_runnable(agent: Any, prompt: str, setup: Setup) -> Any:
    """Each run is a conversation of its own, also for a graph that stores conversations by their thread."""
    config = dict(setup.config)
    if getattr(agent, "checkpointer", None):
        config["configurable"] = {"thread_id": uuid.uuid4().hex, **(config.get("configurable") or {})}
    given = await setup.made("context", getattr(agent, "context_schema", None))
    state = _langchain_input(agent, prompt) if setup.state is None else setup.state(prompt)
    return await agent.ainvoke(state, config=config or None, **given)


def _talk_to_runnable(agent: Any, setup: Setup) -> Callable[[], Callable[[str], Any]] | None:
    async def invoke(state: Any, config: dict[str, Any], given: dict[str, Any]) -> Any:
        if setup.deps is not None and not given:  # once for each conversation
            given |= await setup.made("context", getattr(agent, "context_schema", None))
        return await agent.ainvoke(state, config=config or None, **given)

    first = functools.partial(_langchain_input, agent) if setup.state is None else setup.state
    return talk_to_graph(agent, invoke, first, setup.config)


def make_deps(given: dict[str, Any] | str, folder: Path) -> Callable[[Any], Any]:
    """Makes dependencies from fields, or from `module:attribute`, whose function or class is called for each run."""
    if isinstance(given, str):
        found = load(given, folder)
        if callable(found):
            _refuse_context_manager(found, given, "the dependencies")
        return lambda _kind: found() if callable(found) else found

    return lambda kind: kind(**given) if _is_class(kind) else dict(given)


def check_deps(given: dict[str, Any] | str, kind: Any) -> None:
    """Raise AgentUnreachable for fields that the type of the dependencies does not take."""
    if isinstance(given, str) or not _is_class(kind):
        return
    try:
        inspect.signature(kind).bind(**given)
    except TypeError as error:
        raise AgentUnreachable(f"`agent.deps` does not fit `{kind.__name__}`: {one_line(error)}") from None
    except ValueError:
        return  # a class without a signature


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and not issubclass(kind, dict | type(None)) and kind is not object


def _langchain_input(agent: Any, prompt: str) -> Any:
    """The input in the form that the runnable declares: a conversation, a field of a mapping, or the text itself."""
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


_INSIDE = (
    "agent", "bound", "builder", "first", "func", "handoffs", "last", "middle", "nodes", "runnable", "steps", "tools",
    "tools_by_name", "toolsets", "wrapped",
)  # fmt: skip
"""attributes in which graphs, chains, agents and toolsets hold their parts"""
_FRAMEWORKS = ("agents", "langchain", "langchain_core", "langgraph", "pydantic_ai")
_MAX_DEPTH = 8


def tool_names(agent: Any) -> set[str]:
    """Tools marked by `bylaw.tool`, tools inside a framework's agent, and tools in the agent's module."""
    seen: set[int] = set()
    module = sys.modules.get(getattr(agent, "__module__", None) or type(agent).__module__)
    beside = [] if module is None else [value for value in vars(module).values() if _is_framework(value)]
    return {*marked_names(), *(name for value in (agent, *beside) for name in _find_tool_names(value, seen, 0))}


def _find_tool_names(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    if value is None or isinstance(value, str | bytes | int | float) or id(value) in seen or depth > _MAX_DEPTH:
        return
    seen.add(id(value))
    if isinstance(value, Mapping | list | tuple | set):
        for item in list(value.values() if isinstance(value, Mapping) else value):
            yield from _find_tool_names(item, seen, depth + 1)
    elif _is_framework(value):
        if _is_tool(value):
            yield value.name
        for name in _INSIDE:
            yield from _find_tool_names(_attribute(value, name), seen, depth + 1)


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # a property of the framework that does not apply here
        return None


def _is_framework(value: Any) -> bool:
    """Whether its class, or a base of it, belongs to a framework."""
    return not isinstance(value, type) and any(
        kind.__module__.partition(".")[0] in _FRAMEWORKS for kind in type(value).__mro__
    )


def _is_tool(value: Any) -> bool:
    kinds = {kind.__name__ for kind in type(value).__mro__}
    return bool(kinds & {"BaseTool", "FunctionTool", "Tool", "CustomTool"}) and isinstance(
        _attribute(value, "name"), str
    )
