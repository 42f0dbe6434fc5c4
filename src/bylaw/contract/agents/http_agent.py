"""An agent with a URL: started by its owner, or by Bylaw with a command that serves it.

The request that carries a prompt is built from a template (`prompts`).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from bylaw.contract.agents.answers import MOST_ANSWER, TOO_LARGE, agent_run
from bylaw.contract.agents.external_agent import ExternalAgent, Outcome, ProxiedRun
from bylaw.contract.agents.processes import ServerProcess
from bylaw.contract.agents.prompts import Dialogue, prompt_request
from bylaw.contract.agents.replies import read_reply
from bylaw.contract.faults.model import Injection
from bylaw.contract.faults.plan import PromptPlan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure, is_proxied
from bylaw.contract.model import AgentSpec, messages_of
from bylaw.wire.exchange import Incoming, decompress
from bylaw.wire.proxy.upstream import UpstreamFailure, proxy_for
from bylaw.wire.values import one_line

CONNECT_WITHIN = 5.0
"""seconds; an agent that does not accept a connection is down, however long it may take to answer"""
_ONE_AT_A_TIME = (
    "`agent.concurrency` is 1 here: a request through the proxy does not say which run of a server it belongs to"
)


class HttpAgent(ExternalAgent):
    def __init__(self, spec: AgentSpec, *, base: Path | None = None, ends_children: bool = False) -> None:
        assert spec.endpoint is not None
        super().__init__(spec, base=base, ends_children=ends_children)
        self.name = spec.title
        self._url = spec.endpoint
        self._client: httpx2.AsyncClient | None = None
        self._server: ServerProcess | None = None

    @property
    def concurrency(self) -> int:
        return 1 if is_proxied(self._spec) else self._spec.concurrency

    @property
    def notes(self) -> tuple[str, ...]:
        return (_ONE_AT_A_TIME,) if self.concurrency < self._spec.concurrency else ()

    async def start(self) -> None:
        await super().start()
        # Connections are reused only for HTTPS, where opening one is slow: one that the server closes meanwhile would
        # look like a crash.
        reused = None if self._url.startswith("https:") else 0
        limits = httpx2.Limits(max_keepalive_connections=reused)
        timeout = httpx2.Timeout(None, connect=CONNECT_WITHIN)
        self._client = httpx2.AsyncClient(trust_env=False, proxy=self._users_proxy(), timeout=timeout, limits=limits)
        if self._spec.command:
            self._server = ServerProcess(self._spec.command, self._url, cwd=self.folder, env=self.variables())
            await self._server.start()

    def _users_proxy(self) -> str | None:
        """The proxy that the user's environment names for the agent's host; none for an agent on this machine."""
        parts = urlsplit(self._url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        if host == "localhost" or host.startswith("127.") or host == "::1":
            return None
        try:
            proxy = proxy_for(host, parts.port or (443 if secure else 80), secure=secure)
        except UpstreamFailure as failure:
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
        url = httpx2.URL(self._url)
        url = url.copy_merge_params(asked.params) if asked.params else url
        headers = httpx2.Headers({"accept-encoding": "identity"})
        headers.update(asked.headers)
        request = self._client.build_request(self._spec.method, url, headers=headers, content=asked.body)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._spec.timeout_ms / 1000):
                outcome = await self._send(self._client, request)
        except TimeoutError:
            outcome = Failure("timeout", f"no answer within {self._spec.timeout_ms} ms")
        latency = (time.perf_counter() - began) * 1000
        if isinstance(outcome, Failure) and outcome.kind in ("crash", "down") and self._server is not None:
            ended = await self._server.how_it_ended()
            if ended:
                outcome = Failure("crash", f"the agent's process ended: {ended}")
        return outcome, latency

    async def _send(self, client: httpx2.AsyncClient, request: httpx2.Request) -> str | Failure:
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
