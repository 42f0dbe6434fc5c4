"""A Python agent under test."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bylaw.contract.faults import AnyFault, ContextAttack, ToolFault
from bylaw.contract.live.intercept import Interceptor
from bylaw.contract.live.outcomes import agent_run
from bylaw.contract.live.plan import Plan
from bylaw.contract.live.python.answers import answer_text
from bylaw.contract.live.python.loading import folder_first, load, load_module, made
from bylaw.contract.live.python.output import keep_agents_aside, let_agents_print
from bylaw.contract.live.python.prompting import PromptPlan, uses_model_library
from bylaw.contract.live.python.target import Target, target_of
from bylaw.contract.live.python.tool_names import tool_names
from bylaw.contract.live.python.workers import Outcome, Workers
from bylaw.contract.live.recorder import Recorder
from bylaw.contract.live.reset import RESET_SECONDS, reset_by_function, reset_by_request
from bylaw.contract.live.tools.decorator import shown
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure, Injection
from bylaw.contract.model import AgentSpec
from bylaw.wire.current import LiveRun, under_way
from bylaw.wire.patch_on_import import FRAMEWORKS, LIBRARIES
from bylaw.wire.patches.patches import Patches
from bylaw.wire.values import one_line

_STRAYS = "threads of the agent's own made calls while several runs were under way: no fault could reach those calls"


class PythonAgent:
    """Runs an agent inside this process. Its modules are looked for in `base`, the contract's folder, first."""

    def __init__(self, spec: AgentSpec, *, base: Path | None = None) -> None:
        self.name = spec.endpoint or "python agent"
        self.concurrency = max(1, spec.concurrency)
        self._spec = spec
        self._folder = Path(base or ".") / (spec.cwd or "")
        self._agent: Any = None
        self._target: Target | None = None
        self._names: set[str] = set()
        self._shows_model = False
        self._reset: Any = None
        self._workers = Workers()
        self._patches = Patches()
        self._while_started = contextlib.ExitStack()

    @property
    def has_reset(self) -> bool:
        return bool(self._spec.reset_function or self._spec.reset_endpoint)

    # Before the runs

    async def start(self) -> None:
        self._while_started.enter_context(folder_first(self._folder))
        self._while_started.enter_context(_environment(self._spec.env))
        try:
            for seams in (FRAMEWORKS, LIBRARIES):
                seams.open()
                self._while_started.callback(seams.close)
            self._load()
        except BaseException:
            await self.stop()
            raise
        keep_agents_aside()

    async def stop(self) -> None:
        await self._workers.close()
        self._while_started.close()
        self._patches.undo()
        let_agents_print(unless=self._workers.has_abandoned)

    def refusal(self, fault: AnyFault) -> str | None:
        missing = self._missing_seam(fault)
        if missing is not None:
            return missing
        named = fault.tool if isinstance(fault, ToolFault | ContextAttack) else None
        if named is None or named == "*" or "://" in named or (isinstance(fault, ToolFault) and fault.match_url):
            return None
        known = self._known_names()
        if any(fnmatchcase(name, named) for name in known):
            return None
        listed = ", ".join(f"`{name}`" for name in sorted(known)) or "none"
        return (
            f"no tool of this agent is called `{named}` (known: {listed}); "
            "show it with `@bylaw.tool`, or list it under `agent.tools`"
        )

    def _known_names(self) -> set[str]:
        self._look()
        return self._names

    def _missing_seam(self, fault: AnyFault) -> str | None:
        """A framework whose installed release cannot be reached."""
        self._look()
        if self._target is None or self._target.framework != "pydantic_ai":
            return None
        from bylaw.contract.live.frameworks.pydantic_ai import missing_seam

        return None if isinstance(fault, ToolFault) and fault.match_url else missing_seam()

    def _look(self) -> None:
        """Loads the agent before it is started; where that fails, `start` says why."""
        if self._target is None:
            with folder_first(self._folder), contextlib.suppress(AgentUnreachable):
                self._load()

    def _load(self) -> None:
        if self._target is not None:
            return
        address = self._spec.endpoint or ""
        found = load(address, self._folder)
        self._show_tools()
        if self._spec.reset_function:
            self._reset = load(self._spec.reset_function, self._folder)
        self._agent = made(found, address)
        target = target_of(self._agent, address)
        self._shows_model = target.framework is not None or uses_model_library(self._agent)
        self._names = tool_names(self._agent) | {_tool_name(tool) for tool in self._spec.tools}
        self._target = target

    def _show_tools(self) -> None:
        """Functions listed as `module:attribute` are shown as tools in their place, until the agent stops."""
        for address in self._spec.tools:
            module_name, colon, path = address.partition(":")
            if not colon:
                continue
            load(address, self._folder)
            owner: Any = load_module(module_name, self._folder)
            *holders, name = path.split(".")
            for holder in holders:
                owner = getattr(owner, holder)
            self._patches.replace(owner, name, shown)

    # A run

    async def reset(self) -> None:
        if self._spec.reset_function:
            await reset_by_function(self._resetting, self._spec.reset_function)
        if self._spec.reset_endpoint:
            await reset_by_request(self._spec.reset_endpoint)

    @property
    def _resetting(self) -> Callable[[], Any]:
        """The reset function; a coroutine runs on the agent's own loop, to which the clients it closes belong."""
        if not inspect.iscoroutinefunction(self._reset):
            function: Callable[[], Any] = self._reset
            return function

        async def on_loop() -> None:
            outcome = await self._workers.coroutine(None, self._reset, RESET_SECONDS)
            if outcome is None:
                raise TimeoutError
            if outcome.error is not None:
                raise RuntimeError(one_line(outcome.error)) from outcome.error

        return on_loop

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        FRAMEWORKS.refresh()
        LIBRARIES.refresh()
        plan: Plan
        if self._shows_model:
            plan, asked = Plan(injection), prompt
        else:
            plan = prompt_plan = PromptPlan(injection)
            asked = prompt_plan.attacked(prompt)
        recorder = Recorder(injection.run, asked)
        run = LiveRun(plan, recorder, Interceptor(plan, recorder))
        began = asyncio.get_running_loop().time()
        with under_way(run):
            outcome = await self._asked(run, asked)
        elapsed = (asyncio.get_running_loop().time() - began) * 1000
        latency = elapsed if outcome is None else outcome.latency_ms
        return agent_run(self._judged(outcome), latency, plan, recorder, notes=(_STRAYS,) if run.has_strays else ())

    async def _asked(self, run: LiveRun, prompt: str) -> Outcome | None:
        target = self._target
        assert target is not None, "start comes first"
        work = self._workers.coroutine if target.is_async else self._workers.function
        return await work(run, lambda: target.ask(prompt), self._spec.timeout_ms / 1000)

    def _judged(self, outcome: Outcome | None) -> str | Failure:
        if outcome is None:
            return Failure("timeout", f"no answer within {self._spec.timeout_ms} ms")
        if outcome.error is not None:
            return Failure("crash", one_line(outcome.error))
        try:
            answer = answer_text(outcome.value)
        except Exception as error:  # reading an object runs the agent's own code
            return Failure("bad_answer", f"the answer cannot be read: {one_line(error)}")
        return Failure("bad_answer", "the agent returned nothing") if answer is None else answer


def _tool_name(tool: str) -> str:
    return tool.rpartition(":")[2].rpartition(".")[2]


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
