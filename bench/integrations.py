"""What each adapter adds to a tool call: an agent of the framework with the guard against the same agent without it.

    python bench/integrations.py [--runs N] [--calls N] [--environments]

An agent whose model follows a script calls a tool that does nothing, CALLS times, one call in each turn. A figure is
the CPU time of such a run divided by its calls, the median over runs that alternate with and without the guard. The
guard has no store; its rules are three, one of which counts the calls. Frameworks that are installed are measured;
`--environments` measures the others in the environments that the tests build for them.

Bias: the scripted model costs next to nothing, so a call with a real model is dearer and the ratio smaller. The CPU
time of Claude Code, which runs the agents of the Claude Agent SDK in a process of its own, is counted as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import logging
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
RULES = {
    "rules": [
        {"id": "no-drop", "when": {"tool_name_in": ["drop"]}, "then": "block"},
        {"id": "much", "when": {"arg_gt": {"path": "amount", "value": 100}}, "then": "block"},
        {"id": "often", "when": {"call_count_in_session_gt": {"tool": "book", "value": 1_000_000}}, "then": "block"},
    ],
}
Run = Callable[[], object]


def module(name: str) -> Any:
    """The tests of a framework, which have a scripted model and tools."""
    return import_module(f"tests.guard.integrations.test_{name}")


def langgraph(guard: Any, turns: Any) -> Run:
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    import bylaw

    tests = module("langchain")
    model, tools = tests.ScriptedModel(turns=iter(turns)), tests.tools_of(tests.Shop())
    wrap = {} if guard is None else {"wrap_tool_call": bylaw.integrations.langchain(guard).wrap_tool_call}
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools, **wrap))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    graph = builder.compile()
    return lambda: graph.invoke({"messages": [("user", "go")]}, {"recursion_limit": 10_000})


def langchain(guard: Any, turns: Any) -> Run:
    from langchain.agents import create_agent

    import bylaw

    tests = module("langchain")
    model, tools = tests.ScriptedModel(turns=iter(turns)), tests.tools_of(tests.Shop())
    agent = create_agent(model, tools, middleware=[] if guard is None else [bylaw.integrations.langchain(guard)])
    return lambda: agent.invoke({"messages": [("user", "go")]}, {"recursion_limit": 10_000})


def openai_agents(guard: Any, turns: Any) -> Run:
    import agents
    from agents.testing import ScriptedModel

    import bylaw

    tests = module("openai_agents")
    model = ScriptedModel([*map(tests.calls, turns), tests.saying("done")])
    agent = agents.Agent(name="desk", model=model, tools=tests.tools_of(tests.Shop()))
    guarded = agent if guard is None else bylaw.integrations.openai_agents(guard, agent)
    return lambda: asyncio.run(agents.Runner.run(guarded, "go", max_turns=10_000))


def pydantic_ai(guard: Any, turns: Any) -> Run:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    import bylaw

    tests, script = module("pydantic_ai"), iter(turns)

    def respond(messages: Any, info: Any) -> ModelResponse:
        calls = [ToolCallPart(name, given) for name, given in next(script, [])]
        return ModelResponse(parts=calls or [TextPart("done")])

    capabilities = [] if guard is None else [bylaw.integrations.pydantic_ai(guard)]
    agent = Agent(FunctionModel(respond), capabilities=capabilities)
    for tool in tests.functions_of(tests.Shop()):
        agent.tool_plain(tool)
    return lambda: asyncio.run(agent.run("go"))


def claude_agent_sdk(guard: Any, turns: Any) -> Run:
    from claude_agent_sdk import ClaudeSDKClient

    import bylaw

    tests = module("claude_agent_sdk")

    class Driver(tests.ClaudeDriver):  # type: ignore[misc]
        asks, home = False, Path(tempfile.mkdtemp())

    driver = Driver(guard, tests.Shop(), turns)

    async def run() -> None:
        script = iter(driver.script())
        with tests.serve(lambda _: next(script, None) or [{"type": "text", "text": "done"}]) as address:
            options = driver.plain(address)
            options = options if guard is None else bylaw.integrations.claude_agent_sdk(guard, options)
            async with ClaudeSDKClient(options) as client:
                await client.query("go")
                async for _ in client.receive_response():
                    pass

    return lambda: asyncio.run(run())


def fastmcp(guard: Any, turns: Any) -> Run:
    from fastmcp import Client

    import bylaw

    tests = module("fastmcp")
    server = tests.server_of(tests.Shop())
    if guard is not None:
        server.add_middleware(bylaw.integrations.fastmcp(guard))

    async def run() -> None:
        async with Client(server) as client:
            for turn in turns:
                for name, given in turn:
                    await client.call_tool(name, given)

    return lambda: asyncio.run(run())


def google_adk(guard: Any, turns: Any) -> Run:
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    import bylaw

    tests = module("google_adk")
    agent = LlmAgent(name="desk", model=tests.model(*turns), tools=tests.tools_of(tests.Shop()))
    plugins = [] if guard is None else [bylaw.integrations.google_adk(guard)]
    runner = InMemoryRunner(agent, app_name="app", plugins=plugins)

    async def run() -> None:
        session = await runner.session_service.create_session(app_name="app", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        config = RunConfig(max_llm_calls=0)
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message, run_config=config):
            pass

    return lambda: asyncio.run(run())


def crewai(guard: Any, turns: Any) -> Run:
    import bylaw

    tests = module("crewai")
    crew = tests.crew_of(tests.Shop(), turns, [], max_iter=10_000)

    def run() -> None:
        with contextlib.nullcontext() if guard is None else bylaw.integrations.crewai(guard):
            crew.kickoff()

    return run


def llama_index(guard: Any, turns: Any) -> Run:
    from llama_index.core.agent.workflow import FunctionAgent

    import bylaw

    tests = module("llama_index")
    agent = FunctionAgent(tools=tests.functions_of(tests.Shop()), llm=tests.model(turns), streaming=False)
    if guard is not None:
        bylaw.integrations.llama_index(guard, agent)

    async def run() -> None:
        await agent.run(user_msg="go", max_iterations=10_000)

    return lambda: asyncio.run(run())


def smolagents(guard: Any, turns: Any) -> Run:
    from smolagents import ToolCallingAgent

    import bylaw

    tests = module("smolagents")
    model, tools = tests.ScriptedModel(turns), tests.tools_of(tests.Shop())
    agent = ToolCallingAgent(tools=tools, model=model, verbosity_level=0, max_steps=10_000)
    if guard is not None:
        bylaw.integrations.smolagents(guard, agent)
    return lambda: agent.run("go")


def autogen(guard: Any, turns: Any) -> Run:
    from autogen_agentchat.agents import AssistantAgent

    import bylaw

    tests = module("autogen")
    tools = tests.functions_of(tests.Shop())
    agent = AssistantAgent("desk", tests.ScriptedModel(turns), tools=tools, max_tool_iterations=10_000)
    if guard is not None:
        bylaw.integrations.autogen(guard, agent)
    return lambda: asyncio.run(agent.run(task="go"))


CASES: dict[str, tuple[Callable[[Any, Any], Run], str]] = {
    "LangGraph": (langgraph, "langgraph"),
    "LangChain": (langchain, "langchain"),
    "OpenAI Agents": (openai_agents, "openai-agents"),
    "Pydantic AI": (pydantic_ai, "pydantic-ai-slim"),
    "Claude Agent SDK": (claude_agent_sdk, "claude-agent-sdk"),
    "FastMCP": (fastmcp, "fastmcp"),
    "Google ADK": (google_adk, "google-adk"),
    "CrewAI": (crewai, "crewai"),
    "LlamaIndex": (llama_index, "llama-index-core"),
    "smolagents": (smolagents, "smolagents"),
    "AutoGen": (autogen, "autogen-agentchat"),
}


def tests_of(make: Callable[[Any, Any], Run]) -> str:
    """The framework whose tests have the agent of a case."""
    return "langchain" if make is langgraph else make.__name__


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(make: Callable[[Any, Any], Run], calls: int, runs: int) -> tuple[float, float]:
    """Milliseconds of CPU for one call, without the guard and with it."""
    import bylaw

    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * (runs + 1)):
        guarded = bool(number % 2)
        with bylaw.Guard({"guard": RULES}) as guard, guard.session("s"):
            run = make(guard if guarded else None, [[("book", {"seat": i})] for i in range(calls)])
            started = cpu()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                run()
            if number > 1:  # after one run of each, which imports and compiles
                times[guarded].append((cpu() - started) / calls * 1000)
    return statistics.median(times[False]), statistics.median(times[True])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--environments", action="store_true", help="also those that are not installed here")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
    if not options.rows:
        print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
        print(
            f"{'framework':<18}{'release':>10}{'without ms':>12}{'with ms':>10}{'added ms':>10}{'ratio':>8}", flush=True
        )
    for name, (make, package) in CASES.items():
        with contextlib.suppress(PackageNotFoundError):
            release = version(package)
            without, guarded = measure(make, options.calls, options.runs)
            figures = f"{without:>12.2f}{guarded:>10.2f}{guarded - without:>10.2f}{guarded / without:>8.2f}"
            print(f"{name:<18}{release:>10}{figures}", flush=True)
    if options.environments:
        from tests.support.environments import python_of

        for file in sorted((ROOT / "tests/guard/integrations/requirements").glob("*.txt")):
            if file.stem != "langchain":
                again = [str(python_of(file)), __file__, "--rows", f"--runs={options.runs}", f"--calls={options.calls}"]
                subprocess.run(again, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


if __name__ == "__main__":
    main()
