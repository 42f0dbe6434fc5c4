"""Agents with a URL or a command: the environment that leads them to the chaos proxy, and how each is asked.

A command is started for each run with the prompt as input or argument; its output is the answer. An agent with a URL is
started by its owner, or by Bylaw with a command that serves it; the request that carries a prompt is built from a
template (`prompts`).
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from bylaw.contract.agents import mcp_bridge
from bylaw.contract.agents.answers import MOST_ANSWER, TOO_LARGE, agent_run
from bylaw.contract.agents.chaos_proxy import ChaosProxy, ProxiedRun, is_script
from bylaw.contract.agents.mcp_servers import list_tools
from bylaw.contract.agents.processes import (
    LeftoverProcesses,
    ServerProcess,
    Tail,
    TooLarge,
    kill,
    kill_group,
    read_all,
    start_process,
    termination,
    wait_for_exit,
)
from bylaw.contract.agents.prompts import Dialogue, fill_placeholders, prompt_request, why_no_conversation
from bylaw.contract.agents.python_workers import reset_agent
from bylaw.contract.agents.replies import read_output, read_reply
from bylaw.contract.faults import AnyFault, Injection, ToolFault
from bylaw.contract.faults.plan import PromptPlan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure, is_proxied, why_out_of_reach
from bylaw.contract.model import AgentSpec, messages_of
from bylaw.errors import BylawError
from bylaw.files.temporary import TemporaryFolder
from bylaw.rules.messages import nearest_choice
from bylaw.wire.client import UnusableProxy, proxy_for
from bylaw.wire.exchange import Incoming, decompress
from bylaw.wire.proxy.child_environment import (
    Address,
    Authority,
    base_url_variables,
    named_addresses,
    proxy_variables,
    trust_variables,
)
from bylaw.wire.values import one_line

if TYPE_CHECKING:
    import httpx2

Outcome: TypeAlias = tuple[str | Failure, float]
"""the answer or the failure, and the latency in milliseconds"""
_VERSIONS = {"openai": "/v1", "anthropic": ""}
"""the path of a base URL, as the clients of each provider expect it"""

_ONE_AT_A_TIME = (
    "`agent.concurrency` is 1 here: a request through the proxy does not say which run of a server it belongs to"
)


class ExternalAgent:
    """An agent that runs in another process, with the proxy around it. Subclasses ask it."""

    def __init__(self, spec: AgentSpec, *, base: Path | None = None, ends_children: bool = False) -> None:
        """`ends_children`: whether processes that it leaves behind are ended even if they have lost its environment."""
        self.name = spec.title
        self._spec = spec
        self._base = base or Path()
        self._certificate_folder: TemporaryFolder | None = None
        self._tools: frozenset[str] | None = frozenset()
        """the tools of its MCP servers; None: unknown"""
        self.proxy: ChaosProxy | None = None
        self.leftovers = LeftoverProcesses(ends_marked=True, ends_unmarked=ends_children)
        self._trust: dict[str, str] = {}
        """the variables that make a command trust the proxy; their file is written once"""

    @property
    def has_reset(self) -> bool:
        return self._spec.has_reset

    @property
    def concurrency(self) -> int:
        return 1 if self._spec.endpoint is not None and is_proxied(self._spec) else max(1, self._spec.concurrency)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the trace of each run."""
        return (_ONE_AT_A_TIME,) if self.concurrency < self._spec.concurrency else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What reports say about the agent; complete once it has stopped."""
        return self.leftovers.warnings

    @property
    def knows_tools(self) -> bool:
        """What passes the proxy decides whether its calls are seen."""
        return False

    def load(self) -> None:
        asyncio.run(self._find_tools())

    async def reset(self) -> None:
        await reset_agent(self._spec, self._base)

    def why_no_conversation(self) -> str | None:
        return why_no_conversation(self._spec)

    async def _converse(
        self, messages: Sequence[str], recorder: Recorder, ask: Callable[[str, Dialogue], Awaitable[Outcome]]
    ) -> tuple[str | Failure, float, list[str]]:
        """Ask one message after the other: the last answer or the failure, the longest latency, earlier answers."""
        dialogue, answers, longest = Dialogue(), list[str](), 0.0
        for message in messages:
            if answers:
                recorder.said("assistant", answers[-1])
                recorder.said("user", message)
            outcome, latency = await ask(message, dialogue)
            longest = max(longest, latency)
            if isinstance(outcome, Failure):
                return outcome, longest, answers
            dialogue.add(message, outcome)
            answers.append(outcome)
        return answers[-1], longest, answers[:-1]

    async def _run_proxied(
        self, prompt: str, injection: Injection, ask: Callable[[str, Dialogue, ProxiedRun], Awaitable[Outcome]]
    ) -> AgentRun:
        assert self.proxy is not None
        runs = self.proxy.runs
        messages = messages_of(prompt)
        run = ProxiedRun(injection, messages[0])
        runs.open(run)
        try:
            outcome, latency, earlier = await self._converse(
                messages, run.recorder, lambda message, dialogue: ask(message, dialogue, run)
            )
        finally:
            await runs.close(run)
            self.leftovers.reap()
        if run.unreached:
            # Whatever the agent made of it: this is our side of the proxy, and says nothing about the agent.
            where, why = next(iter(run.unreached.items()))
            outcome = Failure("upstream", f"the model at `{where}` cannot be asked: {why}")
        return agent_run(outcome, latency, run.plan, run.recorder, self.notes, earlier)

    # Its environment: the proxy, if there is one, and the variables that point the agent to it

    @property
    def folder(self) -> Path:
        """The working directory of the command."""
        return self._base / (self._spec.cwd or "")

    async def start(self) -> None:
        """Raises AgentUnreachable."""
        if not is_proxied(self._spec):
            return
        spec = self._spec
        self.leftovers.start()
        self.proxy = ChaosProxy(
            upstreams={**{name: one.origin for name, one in self._base_urls.items()}, **spec.upstreams},
            mcp=spec.mcp,
            base=self._base,
            port=spec.proxy_port,
            authority=self._authority(),
            decrypts_all=spec.trusts_ca,
        )
        await self.proxy.start()
        await self._find_tools()

    async def _find_tools(self) -> None:
        self._tools = await list_tools(self._spec.mcp, self._base)

    async def stop(self) -> None:
        if self.proxy is not None:
            await self.proxy.stop()
            self.proxy = None
        if self._certificate_folder is not None:
            self._certificate_folder.cleanup()
        await self.leftovers.stop()

    @property
    def _base_urls(self) -> dict[str, Address]:
        """The base URLs that the environment of the agent names. An agent that its owner starts has one of its own."""
        try:
            named = named_addresses({**os.environ, **self._spec.env})
        except BylawError as problem:
            raise AgentUnreachable(str(problem)) from None
        own = f":{self._spec.proxy_port}"
        return {name: one for name, one in named.items() if not one.origin.endswith(own)}

    def _authority(self) -> Authority | None:
        """None: HTTPS is not decrypted. A command is made to trust it, so that models that nobody names are seen."""
        if not self._spec.trusts_ca and (not self._spec.command or self._base_urls or self._spec.upstreams):
            return None
        if not self._spec.command:  # its owner starts the agent, which must trust the authority before we run
            return Authority.persistent(self._base / ".bylaw")
        self._certificate_folder = TemporaryFolder("bylaw-")
        return Authority.temporary(Path(self._certificate_folder.name))

    def variables(self, run: ProxiedRun | None = None) -> dict[str, str]:
        """The environment of a command; with a run, every request carries the run's token."""
        assert self.proxy is not None
        token = None if run is None else run.token
        url = self.proxy.url(token)
        forward = url if token is None else f"http://run:{token}@{urlsplit(url).netloc}"
        env = {**os.environ, **self._spec.env}
        env |= {"BYLAW_PROXY": url, **self.leftovers.variables, **proxy_variables(env, forward)}
        for provider, address in self._base_urls.items():
            env |= base_url_variables(provider, f"{url}/{provider}{address.path}")
        for provider in self._spec.upstreams:
            env |= base_url_variables(provider, f"{url}/{provider}{_VERSIONS[provider]}")
        if self.proxy.authority is not None and self._certificate_folder is not None:
            if not self._trust:
                self._trust = trust_variables(env, self.proxy.authority, Path(self._certificate_folder.name))
            env |= self._trust
        for provider in ("openai", "anthropic"):
            if is_script(self._spec.upstreams.get(provider, "")):
                env.setdefault(f"{provider.upper()}_API_KEY", "scripted")
        for server in self._spec.mcp:
            name = "BYLAW_MCP_" + re.sub(r"\W", "_", server.name).upper()
            if server.url is not None:
                env[f"{name}_URL"] = f"{url}/mcp/{server.name}"
            else:
                env[f"{name}_COMMAND"] = shlex.join((sys.executable, str(mcp_bridge.__file__), server.name))
        return env

    def refusal(self, fault: AnyFault) -> str | None:
        """Why a fault can never hit this agent; None if it can.

        A tool that no MCP server has may still be one that runs inside the agent: its results are hit on their way to
        the model. Only a name that is misspelt is refused.
        """
        why = why_out_of_reach(self._spec, fault)
        if why is not None or not isinstance(fault, ToolFault) or fault.match_url is not None:
            return why
        name, tools = fault.tool or "*", self._tools or frozenset()
        if any(fnmatchcase(tool, name) for tool in tools) or (match := nearest_choice(name, tools)) is None:
            return None
        return f"no tool `{name}` is visible to the proxy; did you mean `{match}`, which an MCP server has?"


# Commands

_PROMPT = "{prompt}"
_AFTER_EXIT, _AFTER_KILL = 1.0, 0.2
"""seconds in which the output of a command has to end"""


class CommandAgent(ExternalAgent):
    """Each run has a clean process. A configured reset is for state that the agent keeps elsewhere."""

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        return await self._run_proxied(prompt, injection, self._ask)

    async def _ask(self, prompt: str, dialogue: Dialogue, run: ProxiedRun) -> Outcome:
        variables = self.variables(run)
        values = {**dialogue.values(prompt), "prompt": prompt}
        command = tuple(fill_placeholders(part, values, always_text=True) for part in self._spec.command)
        began = time.perf_counter()
        try:
            process = await start_process(command, cwd=self.folder, env=variables)
        except (OSError, ValueError) as error:
            reason = f"the command `{self._spec.command[0]}` cannot be started: {error}"
            return Failure("down", reason), (time.perf_counter() - began) * 1000
        errors = Tail(process.stderr)
        try:
            async with asyncio.timeout(self._spec.timeout_ms / 1000):
                output = await self._communicate(
                    process, "" if any(_PROMPT in part for part in self._spec.command) else prompt
                )
                latency = (time.perf_counter() - began) * 1000
                await errors.close()
                if process.returncode != 0:
                    return Failure("crash", termination(process, errors.lines())), latency
                return read_output(output), latency
        except TimeoutError:
            failure = Failure("timeout", f"no answer within {self._spec.timeout_ms} ms")
        except TooLarge:
            failure = TOO_LARGE
        finally:
            await errors.close()
            await kill(process)
        return failure, (time.perf_counter() - began) * 1000

    async def _communicate(self, process: Process, prompt: str) -> bytes:
        """All of its output. A child that outlives it and keeps the output open is not waited for."""
        assert process.stdin is not None and process.stdout is not None
        output = bytearray()
        reading = asyncio.create_task(read_all(process.stdout, MOST_ANSWER, output))
        ended = asyncio.create_task(wait_for_exit(process))
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it need not read its input
                process.stdin.write(prompt.encode("utf-8", "surrogateescape"))
                await process.stdin.drain()
            process.stdin.close()
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            await ended
            # Its children may keep the output open. Those in its group are killed; detached ones are not waited for.
            for wait in (_AFTER_EXIT, _AFTER_KILL):
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await asyncio.shield(reading)
                        break
                kill_group(process)
            return bytes(output)
        finally:
            reading.cancel()
            ended.cancel()
            await asyncio.gather(reading, ended, return_exceptions=True)


# URLs

CONNECT_WITHIN = 5.0
"""seconds; an agent that does not accept a connection is down, however long it may take to answer"""


class HttpAgent(ExternalAgent):
    def __init__(self, spec: AgentSpec, *, base: Path | None = None, ends_children: bool = False) -> None:
        assert spec.endpoint is not None
        super().__init__(spec, base=base, ends_children=ends_children)
        import httpx2  # not needed by a command

        self._url = httpx2.URL(spec.endpoint)
        self._client: httpx2.AsyncClient | None = None
        self._server: ServerProcess | None = None

    async def start(self) -> None:
        await super().start()
        # Connections are reused only for HTTPS, where opening one is slow: one that the server closes meanwhile would
        # look like a crash.
        import httpx2

        reused = None if self._url.scheme == "https" else 0
        limits = httpx2.Limits(max_keepalive_connections=reused)
        timeout = httpx2.Timeout(None, connect=CONNECT_WITHIN)
        self._client = httpx2.AsyncClient(trust_env=False, proxy=self._users_proxy(), timeout=timeout, limits=limits)
        if self._spec.command:
            self._server = ServerProcess(self._spec.command, str(self._url), cwd=self.folder, env=self.variables())
            await self._server.start()

    def _users_proxy(self) -> str | None:
        """The proxy that the user's environment names for the agent's host; none for an agent on this machine."""
        host, secure = self._url.host, self._url.scheme == "https"
        if host == "localhost" or host.startswith("127.") or host == "::1":
            return None
        try:
            proxy = proxy_for(host, self._url.port or (443 if secure else 80), secure=secure)
        except UnusableProxy as failure:
            raise AgentUnreachable(f"`{self.name}` cannot be asked: {failure}") from None
        return None if proxy is None else proxy.geturl()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._client is not None:
            await self._client.aclose()
        await super().stop()

    async def reset(self) -> None:
        await self._restart_if_ended()
        await super().reset()

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        if self.proxy is None:
            return await self._run_unseen(prompt, injection)
        try:
            await self._restart_if_ended()
        except AgentUnreachable as error:
            run = ProxiedRun(injection, prompt)
            return agent_run(Failure("down", str(error)), 0.0, run.plan, run.recorder, self.notes)
        return await self._run_proxied(prompt, injection, lambda message, dialogue, _run: self._ask(message, dialogue))

    async def _run_unseen(self, prompt: str, injection: Injection) -> AgentRun:
        """Only the answer of the agent is seen, so attacks on its context go into the prompt."""
        plan = PromptPlan(injection)
        messages = [plan.attack_prompt(message) for message in messages_of(prompt)]
        recorder = Recorder(injection.run, messages[0])
        outcome, latency, earlier = await self._converse(messages, recorder, self._ask)
        return agent_run(outcome, latency, plan, recorder, self.notes, earlier)

    async def _ask(self, prompt: str, dialogue: Dialogue) -> Outcome:
        assert self._client is not None
        asked = prompt_request(self._spec, prompt, dialogue.values(prompt))
        url = self._url.copy_merge_params(asked.params) if asked.params else self._url
        headers = {"accept-encoding": "identity", **asked.headers}
        request = self._client.build_request(self._spec.method, url, headers=headers, content=asked.body)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._spec.timeout_ms / 1000):
                outcome = await self._send(self._client, request)
        except TimeoutError:
            outcome = Failure("timeout", f"no answer within {self._spec.timeout_ms} ms")
        latency = (time.perf_counter() - began) * 1000
        if isinstance(outcome, Failure) and outcome.kind in ("crash", "down") and self._server is not None:
            ended = await self._server.describe_exit()
            if ended:
                outcome = Failure("crash", f"the agent's process ended: {ended}")
        return outcome, latency

    async def _send(self, client: httpx2.AsyncClient, request: httpx2.Request) -> str | Failure:
        import httpx2

        try:
            reply = await client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return Failure("down", f"cannot connect to `{self.name}`: {one_line(error)}")
        except httpx2.HTTPError as error:
            return Failure("crash", f"the agent broke off before it answered: {one_line(error)}")
        try:
            raw = bytearray()
            async for data in reply.aiter_raw():
                raw += data
                if len(raw) > MOST_ANSWER:
                    return TOO_LARGE
        except httpx2.HTTPError as error:
            return Failure("crash", f"the agent broke off its answer: {one_line(error)}")
        finally:
            await reply.aclose()
        headers = {name.lower(): value for name, value in reply.headers.items()}
        body = decompress(Incoming(reply.status_code, headers, bytes(raw)), whole=True)
        if body is None:
            encoding = headers.get("content-encoding")
            return Failure("bad_answer", f"the reply (`{encoding}`) is cut off, too large or cannot be decompressed")
        is_delimited = "content-length" in headers or "transfer-encoding" in headers
        kind = headers.get("content-type", "")
        return read_reply(reply.status_code, body, self._spec.response_path, kind, is_delimited=is_delimited)

    async def _restart_if_ended(self) -> None:
        """A server that crashed in one run is started again for the next."""
        if self._server is not None and not self._server.is_alive:
            await self._server.start()
