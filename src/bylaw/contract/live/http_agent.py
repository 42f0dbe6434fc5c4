"""An agent that is reached by a URL: started by its owner, or by Bylaw with a command that serves it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx2

from bylaw.contract.faults import AnyFault
from bylaw.contract.live.outcomes import agent_run
from bylaw.contract.live.python.prompting import PromptPlan
from bylaw.contract.live.recorder import Recorder
from bylaw.contract.live.replies import read_reply
from bylaw.contract.live.resetting import Resetter
from bylaw.contract.live.serving import ServingCommand
from bylaw.contract.live.surroundings import Surroundings
from bylaw.contract.live.templates import asking
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure, Injection
from bylaw.contract.model import AgentSpec
from bylaw.wire.proxy.runs import ProxiedRun
from bylaw.wire.values import one_line

MOST_ANSWER = 10 * 1024 * 1024
CONNECT_WITHIN = 5.0
"""seconds; an agent that takes no connection is down, however long it may take to answer"""
_ONE_AT_A_TIME = (
    "`agent.concurrency` is 1 here: a request through the proxy does not tell which run of a server it belongs to"
)


class HttpAgent:
    def __init__(self, spec: AgentSpec, *, base: Path | None = None) -> None:
        assert spec.endpoint is not None
        base = base or Path()
        self.name = spec.title
        self._spec = spec
        self._url = spec.endpoint
        self._around = Surroundings(spec, base)
        self._resetter = Resetter(spec, base)
        self._client: httpx2.AsyncClient | None = None
        self._server: ServingCommand | None = None

    @property
    def concurrency(self) -> int:
        return 1 if self._around.is_proxied else self._spec.concurrency

    @property
    def notes(self) -> tuple[str, ...]:
        return (_ONE_AT_A_TIME,) if self.concurrency < self._spec.concurrency else ()

    @property
    def has_reset(self) -> bool:
        return self._resetter.is_set

    def refusal(self, fault: AnyFault) -> str | None:
        return self._around.refusal(fault)

    async def start(self) -> None:
        await self._around.start()
        # Proxies in the environment are for the agent, not for asking it. A connection is kept only where opening one
        # is dear: one that the server closes meanwhile would look like a crash, and small servers answer late on it.
        kept = None if self._url.startswith("https:") else 0
        limits = httpx2.Limits(max_keepalive_connections=kept)
        timeout = httpx2.Timeout(None, connect=CONNECT_WITHIN)
        self._client = httpx2.AsyncClient(trust_env=False, timeout=timeout, limits=limits)
        if self._spec.command:
            self._server = ServingCommand(
                self._spec.command, self._url, cwd=self._around.folder, env=self._around.environment()
            )
            await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._client is not None:
            await self._client.aclose()
        await self._around.stop()

    async def reset(self) -> None:
        await self._revive()
        await self._resetter.reset()

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        if self._around.proxy is None:
            return await self._alone(prompt, injection)
        run = ProxiedRun(injection, prompt)
        try:
            await self._revive()
        except AgentUnreachable as error:
            return agent_run(Failure("down", str(error)), 0.0, run.plan, run.recorder, self.notes)
        runs = self._around.proxy.runs
        runs.open(run)
        try:
            outcome, latency = await self._timed(prompt)
        finally:
            await runs.close(run)
        return agent_run(await self._explained(outcome), latency, run.plan, run.recorder, self.notes)

    async def _alone(self, prompt: str, injection: Injection) -> AgentRun:
        """Nothing of the agent is seen but its answer: attacks on its context go into the prompt."""
        plan = PromptPlan(injection)
        asked = plan.attacked(prompt)
        recorder = Recorder(injection.run, asked)
        outcome, latency = await self._timed(asked)
        return agent_run(outcome, latency, plan, recorder, self.notes)

    async def _timed(self, prompt: str) -> tuple[str | Failure, float]:
        asked = asking(self._spec, prompt)
        assert self._client is not None
        url = httpx2.URL(self._url)
        url = url.copy_merge_params(asked.params) if asked.params else url
        request = self._client.build_request(self._spec.method, url, headers=asked.headers, content=asked.body)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._spec.timeout_ms / 1000):
                outcome = await self._ask(self._client, request)
        except TimeoutError:
            outcome = Failure("timeout", f"no answer within {self._spec.timeout_ms} ms")
        return outcome, (time.perf_counter() - began) * 1000

    async def _ask(self, client: httpx2.AsyncClient, request: httpx2.Request) -> str | Failure:
        try:
            reply = await client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return Failure("down", f"cannot connect to `{self.name}`: {one_line(error)}")
        except httpx2.HTTPError as error:
            return Failure("crash", f"the agent broke off before it answered: {one_line(error)}")
        try:
            body = bytearray()
            async for data in reply.aiter_bytes():
                body += data
                if len(body) > MOST_ANSWER:
                    return Failure("bad_answer", f"the answer is larger than {MOST_ANSWER // 1024**2} MB")
        except httpx2.HTTPError as error:
            return Failure("crash", f"the agent broke off its answer: {one_line(error)}")
        finally:
            await reply.aclose()
        return read_reply(reply.status_code, bytes(body), self._spec.response_path)

    # The process behind the endpoint

    async def _revive(self) -> None:
        """A server that crashed in one run is started again for the next."""
        if self._server is not None and not self._server.is_alive:
            await self._server.start()

    async def _explained(self, outcome: str | Failure) -> str | Failure:
        if isinstance(outcome, Failure) and outcome.kind in ("crash", "down") and self._server is not None:
            ended = await self._server.how_it_ended()
            return Failure("crash", f"the agent's process ended: {ended}") if ended else outcome
        return outcome
