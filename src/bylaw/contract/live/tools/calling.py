"""One call of a named tool: the fault that hits it, the attack inside its result, and the record of both."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from bylaw.contract.faults import ToolFault
from bylaw.contract.live.attacks import attack_result, attack_text, placed
from bylaw.contract.live.effects import DEFAULT_PAYLOAD, aged, emptied, malformed, wrong_data
from bylaw.contract.live.tools.decorator import entered, left
from bylaw.wire.current import LiveRun
from bylaw.wire.values import one_line, plain, same

DEFAULT_DELAYS_MS = {"timeout": 30_000, "slow": 5_000}


class ToolFailure(RuntimeError):
    """What a tool raises that was made to fail."""


class Lens(Struct, frozen=True):
    """Where a framework's result holds what the tool said."""

    get: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


WHOLE = Lens(lambda result: result, lambda _result, said: said)


def call_tool(
    run: LiveRun,
    name: str,
    arguments: Any,
    function: Callable[[], Any],
    *,
    call_id: str | None = None,
    lens: Lens = WHOLE,
) -> Any:
    call = NamedCall(run, name, arguments, call_id, lens)
    token = entered(name)
    try:
        if call.delay:
            run.wait(call.delay)
        call.fail()
        return call.answered(call.instead() if call.is_replaced else function())
    except BaseException as error:
        call.raised(error)
        raise
    finally:
        left(token)


async def acall_tool(
    run: LiveRun,
    name: str,
    arguments: Any,
    function: Callable[[], Awaitable[Any]],
    *,
    call_id: str | None = None,
    lens: Lens = WHOLE,
) -> Any:
    call = NamedCall(run, name, arguments, call_id, lens)
    token = entered(name)
    try:
        if call.delay:
            await asyncio.sleep(call.delay)
        call.fail()
        return call.answered(call.instead() if call.is_replaced else await function())
    except BaseException as error:
        call.raised(error)
        raise
    finally:
        left(token)


class NamedCall:
    """A call of a tool from its beginning to its result."""

    def __init__(self, run: LiveRun, name: str, arguments: Any, call_id: str | None, lens: Lens) -> None:
        self._run = run
        self._name = name
        self._lens = lens
        self._fault = run.plan.tool_call(name)
        self._mode = self._fault.mode if self._fault else None
        self._token = run.recorder.tool_called(name, plain(arguments), call_id)
        self._began = time.perf_counter()
        if self._fault and self._mode in ("timeout", "slow", "error"):
            run.plan.hit(self._fault)

    @property
    def delay(self) -> float:
        """Seconds before anything else happens."""
        if self._fault is None or self._mode not in DEFAULT_DELAYS_MS:
            return 0.0
        given = self._fault.delay_ms
        return (DEFAULT_DELAYS_MS[self._mode] if given is None else given) / 1000

    def fail(self) -> None:
        """Raises what the fault raises instead of calling the tool."""
        if self._fault is not None and self._mode == "timeout":
            raise TimeoutError(self._fault.message or f"tool `{self._name}` timed out")
        if self._fault is not None and self._mode == "error":
            raise ToolFailure(f"{self._fault.error_code}: {self._fault.message or 'service unavailable'}")

    @property
    def is_replaced(self) -> bool:
        """Whether the result is settled without calling the tool."""
        fault = self._fault
        return fault is not None and (
            self._mode == "malicious_response" or (self._mode == "wrong_data" and fault.payload is not None)
        )

    def instead(self) -> Any:
        assert self._fault is not None
        self._run.plan.hit(self._fault)
        payload = self._fault.payload
        return DEFAULT_PAYLOAD if payload is None else payload

    def answered(self, result: Any) -> Any:
        """What the agent gets to see of the tool's result."""
        said = result if self.is_replaced else self._lens.get(result)
        if self._fault is not None and not self.is_replaced:
            said = self._faulty(self._fault, said)
        else:
            self._run.first_results.setdefault(self._name, said)
        said = self._attacked(said)
        self._run.recorder.tool_returned(self._token, plain(said), False, self._elapsed_ms())
        return said if self.is_replaced else self._lens.put(result, said)

    def raised(self, error: BaseException) -> None:
        self._run.recorder.tool_returned(self._token, one_line(error), True, self._elapsed_ms())

    def _faulty(self, fault: ToolFault, said: Any) -> Any:
        first = self._run.first_results.setdefault(self._name, said)
        changed = said
        if fault.mode == "malformed":
            changed = _malformed(said)
        elif fault.mode == "empty":
            changed = emptied(said)
        elif fault.mode == "wrong_data":
            changed = wrong_data(said, self._run.plan.random(fault))
        elif fault.mode == "stale":
            changed = aged(said) if same(first, said) else first
        if fault.mode != "slow" and not same(changed, said):
            self._run.plan.hit(fault)
        return changed

    def _attacked(self, said: Any) -> Any:
        for attack in self._run.plan.attacks(on_result_of=self._name):
            changed = _attacked(said, attack_text(attack, self._run.plan.random(attack)), attack.strategy)
            if not same(changed, said):
                self._run.plan.hit(attack)
            said = changed
        return said

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._began) * 1000


def _malformed(said: Any) -> Any:
    if isinstance(said, bytes):
        return said[: len(said) // 2]
    return malformed(said if isinstance(said, str) else json.dumps(plain(said), ensure_ascii=False))


def _attacked(said: Any, text: str, strategy: str) -> Any:
    """An object keeps its type: the attack goes into the longest of its own texts."""
    if isinstance(said, tuple):
        return tuple(attack_result(list(said), text, strategy))
    fields = {name: value for name, value in getattr(said, "__dict__", {}).items() if isinstance(value, str)}
    if isinstance(said, str | dict | list) or not fields:
        return attack_result(said, text, strategy)
    clone = copy.copy(said)
    longest = max(fields, key=lambda name: len(fields[name]))
    clone.__dict__[longest] = placed(fields[longest], text, strategy)
    return clone
