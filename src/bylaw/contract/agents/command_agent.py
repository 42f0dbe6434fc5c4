"""An agent that is a command: started for each run with the prompt as input or argument; its output is the answer."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path

from bylaw.contract.agents.answers import MOST_ANSWER, TOO_LARGE
from bylaw.contract.agents.external_agent import ExternalAgent, Outcome, ProxiedRun
from bylaw.contract.agents.processes import (
    Tail,
    TooLarge,
    exited,
    kill,
    kill_group,
    read_all,
    start_process,
    termination,
)
from bylaw.contract.agents.prompts import Dialogue, filled
from bylaw.contract.agents.replies import read_output
from bylaw.contract.faults.model import Injection
from bylaw.contract.live_agent import AgentRun, Failure
from bylaw.contract.model import AgentSpec

_PROMPT = "{prompt}"
_AFTER_EXIT, _AFTER_KILL = 1.0, 0.2
"""seconds in which the output of a command has to end"""


class CommandAgent(ExternalAgent):
    """Each run has a clean process. A configured reset is for state that the agent keeps elsewhere."""

    def __init__(self, spec: AgentSpec, *, base: Path | None = None, ends_children: bool = False) -> None:
        super().__init__(spec, base=base, ends_children=ends_children)
        self.name = " ".join(spec.command)
        self.concurrency = max(1, spec.concurrency)

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        return await self._run_proxied(prompt, injection, self._ask)

    async def _ask(self, prompt: str, dialogue: Dialogue, run: ProxiedRun) -> Outcome:
        variables = self.variables(run)
        values = {**dialogue.values(prompt), "prompt": prompt}
        command = tuple(filled(part, values, always_text=True) for part in self._spec.command)
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
