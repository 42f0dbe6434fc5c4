"""An agent that is a command: started for each run, asked on its input or by an argument, and its output the answer."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path

from bylaw.contract.faults import AnyFault
from bylaw.contract.live.http_agent import MOST_ANSWER
from bylaw.contract.live.outcomes import agent_run
from bylaw.contract.live.processes import Tail, TooLarge, ending, exited, kill, kill_group, read_all, start
from bylaw.contract.live.resetting import Resetter
from bylaw.contract.live.surroundings import Surroundings
from bylaw.contract.live_agent import AgentRun, Failure, Injection
from bylaw.contract.model import AgentSpec
from bylaw.wire.proxy.runs import ProxiedRun

_PROMPT = "{prompt}"


class CommandAgent:
    def __init__(self, spec: AgentSpec, *, base: Path | None = None) -> None:
        base = base or Path()
        self.name = " ".join(spec.command)
        self.concurrency = max(1, spec.concurrency)
        self._spec = spec
        self._around = Surroundings(spec, base)
        self._resetter = Resetter(spec, base)

    @property
    def has_reset(self) -> bool:
        """A process of its own is clean in itself; what it keeps elsewhere is for a reset that is configured."""
        return self._resetter.is_set

    def refusal(self, fault: AnyFault) -> str | None:
        return self._around.refusal(fault)

    async def start(self) -> None:
        await self._around.start()

    async def stop(self) -> None:
        await self._around.stop()

    async def reset(self) -> None:
        await self._resetter.reset()

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        assert self._around.proxy is not None
        run = ProxiedRun(injection, prompt)
        runs = self._around.proxy.runs
        runs.open(run)
        try:
            outcome, latency = await self._timed(prompt, run)
        finally:
            await runs.close(run)
        return agent_run(outcome, latency, run.plan, run.recorder)

    async def _timed(self, prompt: str, run: ProxiedRun) -> tuple[str | Failure, float]:
        env = self._around.environment(run)
        command = tuple(part.replace(_PROMPT, prompt) for part in self._spec.command)
        began = time.perf_counter()
        try:
            process = await start(command, cwd=self._around.folder, env=env)
        except (OSError, ValueError) as error:
            reason = f"the command `{self._spec.command[0]}` cannot be started: {error}"
            return Failure("down", reason), (time.perf_counter() - began) * 1000
        said = Tail(process.stderr)
        try:
            async with asyncio.timeout(self._spec.timeout_ms / 1000):
                output = await self._talk(process, "" if command != self._spec.command else prompt)
                latency = (time.perf_counter() - began) * 1000
                await said.close()
                return self._read(process, output, said), latency
        except TimeoutError:
            outcome = Failure("timeout", f"no answer within {self._spec.timeout_ms} ms")
        except TooLarge:
            outcome = Failure("bad_answer", f"the answer is larger than {MOST_ANSWER // 1024**2} MB")
        finally:
            await said.close()
            await kill(process)
        return outcome, (time.perf_counter() - began) * 1000

    async def _talk(self, process: Process, prompt: str) -> bytes:
        """All of its output. A child that outlives it may hold the output open: that is not waited for."""
        assert process.stdin is not None and process.stdout is not None
        reading = asyncio.create_task(read_all(process.stdout, MOST_ANSWER))
        ended = asyncio.create_task(exited(process))
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it need not read its input
                process.stdin.write(prompt.encode("utf-8", "surrogateescape"))
                await process.stdin.drain()
            process.stdin.close()
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            await ended
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    return await asyncio.shield(reading)
            kill_group(process)  # closes the output that its children hold
            return await reading
        finally:
            reading.cancel()
            ended.cancel()
            await asyncio.gather(reading, ended, return_exceptions=True)

    def _read(self, process: Process, output: bytes, said: Tail) -> str | Failure:
        if process.returncode != 0:
            return Failure("crash", ending(process, said.lines()))
        return output.decode("utf-8", "replace").rstrip("\r\n")
