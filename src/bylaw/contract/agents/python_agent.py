"""A Python agent under test, which runs in this process. Its output goes to stderr, because stdout is for results."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TextIO

from msgspec.structs import replace

from bylaw.contract.agents.answers import (
    MOST_ANSWER,
    TOO_LARGE,
    NoAnswer,
    agent_run,
    answer_text,
    plain_value,
)
from bylaw.contract.agents.processes import LeftoverProcesses
from bylaw.contract.agents.prompts import NO_CONVERSATION, fill_template, needs_talk
from bylaw.contract.agents.python_target import (
    Setup,
    Target,
    call_factory,
    check_deps,
    import_path,
    instance_of,
    load,
    load_module,
    make_deps,
    target_of,
    tool_names,
)
from bylaw.contract.agents.python_workers import (
    RESET_SECONDS,
    Outcome,
    Workers,
    reset_by_function,
    reset_by_request,
)
from bylaw.contract.agents.replies import Chunks, join_chunks, read_at, read_text
from bylaw.contract.agents.streams import read_list
from bylaw.contract.faults import AnyFault, ContextAttack, Injection, ToolFault
from bylaw.contract.faults.live_run import LiveRun, current_run
from bylaw.contract.faults.plan import Plan, PromptPlan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.frameworks import FRAMEWORKS, why_no_pydantic_ai
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure
from bylaw.contract.model import AgentSpec, messages_of
from bylaw.contract.tools import as_tool
from bylaw.wire.listeners import is_agent_code, register_run
from bylaw.wire.patch_on_import import LIBRARIES, Patches
from bylaw.wire.values import one_line

_STRAYS = "threads of the agent made calls while several runs were in progress: no fault could reach those calls"


class PythonAgent:
    """Modules are searched in `base`, the contract's folder, first."""

    def __init__(self, spec: AgentSpec, *, base: Path | None = None, ends_children: bool = False) -> None:
        """`ends_children`: whether processes that it leaves behind are ended, and not only named.

        In a program of somebody else, another thread may have started them meanwhile.
        """
        self.name = spec.endpoint or "python agent"
        self.concurrency = max(1, spec.concurrency)
        self._spec = spec
        self._folder = Path(base or ".").absolute() / (spec.cwd or "")
        self._agent: Any = None
        self._found: Any = None
        """the object at the endpoint: the agent, its class or its factory"""
        self._setup = Setup()
        self._target: Target | None = None
        self._names: set[str] = set()
        self._asks_model: bool | None = None
        """whether its requests to models were seen; None: not known yet"""
        self._reset: Any = None
        self._workers = Workers()
        self._patches = Patches()
        self._leftovers = LeftoverProcesses(ends_marked=ends_children, ends_unmarked=ends_children)
        self._while_started = contextlib.ExitStack()

    @property
    def has_reset(self) -> bool:
        return self._spec.has_reset

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._leftovers.warnings

    # Before the runs

    async def start(self) -> None:
        self._leftovers.start()
        self._while_started.enter_context(import_path(self._folder))
        self._while_started.enter_context(_environment({**self._spec.env, **self._leftovers.variables}))
        self._while_started.callback(os.chdir, os.getcwd())  # an agent may change the directory
        try:
            for patches in (FRAMEWORKS, LIBRARIES):
                patches.open()
                self._while_started.callback(patches.close)
            self._patches.replace(os, "_exit", _exit_of_agent)
            self._load()
        except BaseException:
            await self.stop()
            raise
        redirect_agent_output()

    async def stop(self) -> None:
        await self._workers.close()
        await self._leftovers.stop()
        self._while_started.close()
        self._patches.undo()
        restore_output(unless=self._workers.has_abandoned)

    @property
    def tools(self) -> frozenset[str]:
        """The names of its tools, as far as they are known."""
        return frozenset(self._names)

    @property
    def knows_tools(self) -> bool:
        """Whether calls of its tools are seen. If it has none, a model that it asks shows its calls."""
        return bool(self._names)

    def load(self) -> None:
        """Import the agent before it is started. Raises AgentUnreachable."""
        with import_path(self._folder), _environment(self._spec.env):
            self._load()

    def refusal(self, fault: AnyFault) -> str | None:
        if self._target is None:
            with contextlib.suppress(AgentUnreachable):  # `start` says why
                self.load()
        is_url = isinstance(fault, ToolFault) and fault.match_url
        if self._target is not None and self._target.framework == "pydantic_ai" and not is_url:
            reason = why_no_pydantic_ai()
            if reason is not None:
                return reason
        tool = fault.tool if isinstance(fault, ToolFault | ContextAttack) else None
        if tool is None or tool == "*" or "://" in tool or is_url:
            return None
        if any(fnmatchcase(name, tool) for name in self._names):
            return None
        listed = ", ".join(f"`{name}`" for name in sorted(self._names)) or "none"
        return (
            f"no tool of this agent is called `{tool}` (known: {listed}); "
            "mark it with `@bylaw.tool`, or list it under `agent.tools`"
        )

    def _load(self) -> None:
        if self._target is not None:
            return
        address = self._spec.endpoint or ""
        found = load(address, self._folder)
        self._mark_tools()
        if self._spec.reset_function:
            self._reset = load(self._spec.reset_function, self._folder)
        setup = Setup(
            config=self._spec.config,
            deps=None if self._spec.deps is None else make_deps(self._spec.deps, self._folder),
            check_deps=None if self._spec.deps is None else functools.partial(check_deps, self._spec.deps),
            state=None if self._spec.request_template is None else functools.partial(fill_template, self._spec),
        )
        self._found, self._setup = found, setup
        self._agent = call_factory(found, address) if self._spec.factory else instance_of(found, address)
        target = target_of(self._agent, address, setup)
        if self._spec.factory:  # for each run a new agent
            target = replace(
                target, ask=lambda prompt: target_of(call_factory(found, address), address, setup).ask(prompt)
            )
        self._asks_model = True if target.framework is not None else None
        listed = {tool.rpartition(":")[2].rpartition(".")[2] for tool in self._spec.tools}
        self._names = tool_names(self._agent) | listed
        self._target = target

    def _mark_tools(self) -> None:
        """Mark functions that are listed as `module:attribute` as tools, until the agent stops."""
        for address in self._spec.tools:
            module_name, colon, path = address.partition(":")
            if not colon:
                continue
            load(address, self._folder)
            owner: Any = load_module(module_name, self._folder)
            *holders, name = path.split(".")
            for holder in holders:
                owner = getattr(owner, holder)
            self._patches.replace(owner, name, as_tool)

    # A run

    async def reset(self) -> None:
        if self._spec.reset_function:
            await reset_by_function(self._reset_function, self._spec.reset_function)
        if self._spec.reset_endpoint:
            await reset_by_request(self._spec.reset_endpoint)

    @property
    def _reset_function(self) -> Callable[[], Any]:
        """The reset function. A coroutine runs on the agent's own loop, to which the clients that it closes belong."""
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
        """Attacks on the context go into requests to the model, or into the prompt of an agent that makes none.

        Only a run can tell. The first one with an attack that took the agent for the wrong kind is made again.
        """
        FRAMEWORKS.refresh()
        LIBRARIES.refresh()
        attacks = [f for f in injection.faults if isinstance(f, ContextAttack) and f.type != "indirect_injection"]
        was_in_prompt = self._asks_model is False
        plan, run = await self._run_once(prompt, injection, in_prompt=was_in_prompt)
        if plan.asks_model:
            self._asks_model = True
        elif self._asks_model is None and run.failure is None:
            self._asks_model = False
        if attacks and was_in_prompt is not (self._asks_model is False):
            if self.has_reset:
                await self.reset()
            _, run = await self._run_once(prompt, injection, in_prompt=not was_in_prompt)
        return run

    async def _run_once(self, prompt: str, injection: Injection, *, in_prompt: bool) -> tuple[Plan, AgentRun]:
        plan, messages = Plan(injection), messages_of(prompt)
        if in_prompt:
            plan = prompt_plan = PromptPlan(injection)
            messages = tuple(prompt_plan.attack_prompt(message) for message in messages)
        recorder = Recorder(injection.run, messages[0])
        run = LiveRun(plan, recorder)
        answers: list[str] = []
        latency = 0.0
        assert self._target is not None, "start comes first"
        is_one = len(messages) == 1 and not needs_talk(self._target.talk)
        ask = None if is_one else self._conversation()
        with register_run(run):
            for message in messages:
                if answers:
                    run.resume()
                    recorder.said("assistant", answers[-1])
                    recorder.said("user", message)
                began = asyncio.get_running_loop().time()
                outcome = await self._ask(run, message, ask)
                elapsed = (asyncio.get_running_loop().time() - began) * 1000
                latency = max(latency, elapsed if outcome is None else outcome.latency_ms)
                answer = self._answer(outcome)
                if run.exit_status is not None:
                    answer = Failure("crash", f"the agent ended its process: os._exit({run.exit_status})")
                if isinstance(answer, Failure):
                    break
                answers.append(answer)
                if (dialogue := getattr(ask, "dialogue", None)) is not None:
                    dialogue.add(message, answer)
        notes = (_STRAYS,) if run.has_strays else ()
        earlier = answers if isinstance(answer, Failure) else answers[:-1]
        return plan, agent_run(answer, latency, plan, recorder, notes, earlier)

    def why_no_conversation(self) -> str | None:
        """Why it cannot be asked more than one message; None if it can."""
        can = self._spec.factory or self.has_reset or (self._target is not None and self._target.talk is not None)
        return None if can else NO_CONVERSATION

    def _conversation(self) -> Callable[[str], Any] | None:
        """What answers the messages of one conversation; None: the agent stores the conversation itself."""
        assert self._target is not None, "start comes first"
        if self._spec.factory:
            made = target_of(call_factory(self._found, self.name), self.name, self._setup)
            return made.ask if made.talk is None else made.talk()
        return None if self._target.talk is None else self._target.talk()

    async def _ask(self, run: LiveRun, prompt: str, ask: Callable[[str], Any] | None = None) -> Outcome | None:
        """`ask`: of a conversation that has begun."""
        target = self._target
        assert target is not None, "start comes first"
        work = self._workers.coroutine if target.is_async else self._workers.function
        return await work(run, lambda: (ask or target.ask)(prompt), self._spec.timeout_ms / 1000)

    def _answer(self, outcome: Outcome | None) -> str | Failure:
        if outcome is None:
            return Failure("timeout", f"no answer within {self._spec.timeout_ms} ms")
        if outcome.error is not None:
            return Failure("crash", one_line(outcome.error))
        if isinstance(outcome.value, Chunks):
            return join_chunks(outcome.value, self._spec.response_path)
        try:
            answer = self._read(outcome.value, self._spec.response_path)
            return TOO_LARGE if isinstance(answer, str) and len(answer) > MOST_ANSWER else answer
        except NoAnswer as problem:
            return problem.failure("returned")
        except Exception as error:  # reading an object runs the agent's own code
            return Failure("bad_answer", f"the answer cannot be read: {one_line(error)}")

    def _read(self, value: Any, path: str | None) -> str | Failure:
        """Raises NoAnswer, ReportsFailure."""
        if path is not None and not isinstance(value, str | bytes | bytearray | memoryview):
            plain = plain_value(value)
            listed = read_list(plain, path) if isinstance(plain, list) else None
            return read_at(plain, path) if listed is None else listed
        text = answer_text(value)
        return Failure("bad_answer", "the agent returned nothing") if text is None else read_text(text, path)


def _exit_of_agent(original: Any) -> Any:
    """`os._exit` ends the run of an agent that calls it, not Bylaw. A process that the agent forked does end."""
    our_process = os.getpid()

    def _exit(status: int) -> None:
        run = current_run() if os.getpid() == our_process and is_agent_code() else None
        if run is None:
            original(status)
        else:
            run.exit_status = status
            raise SystemExit(status)

    return _exit


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


class _Output:
    """Standard output; what agent code writes goes to standard error."""

    def __init__(self, inner: TextIO) -> None:
        self.inner = inner
        self.users = 0

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def writelines(self, lines: Any) -> None:
        self._stream().writelines(lines)

    def flush(self) -> None:
        self._stream().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def _stream(self) -> TextIO:
        return sys.stderr if is_agent_code() else self.inner


def redirect_agent_output() -> None:
    """Send what agent code prints to standard error, until `restore_output` has been called as often."""
    if not isinstance(sys.stdout, _Output):
        sys.stdout = _Output(sys.stdout)
    sys.stdout.users += 1


def restore_output(*, unless: bool = False) -> None:
    """`unless`: abandoned agent code is still running, and must not print among the results."""
    if isinstance(sys.stdout, _Output):
        sys.stdout.users -= 1
        if sys.stdout.users <= 0 and not unless:
            sys.stdout = sys.stdout.inner
