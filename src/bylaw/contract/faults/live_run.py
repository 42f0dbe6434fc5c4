"""One run of an agent in this process, and its calls of named tools.

A call of a tool may be hit by a fault, and its result by attacks; both are recorded.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from msgspec import Struct

from bylaw.contract.faults import ToolFault, attempt_scope, effects
from bylaw.contract.faults.exchanges import Interceptor
from bylaw.contract.faults.plan import Plan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.faults.texts import attack_result, attack_strategy, attack_text, combine_texts
from bylaw.contract.tools import inside_tool, is_inside_tool, run_for
from bylaw.wire import listeners
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.listeners import RunOver
from bylaw.wire.values import is_same, one_line, plain


class ToolFailure(RuntimeError):
    """Raised by a tool that was made to fail."""


class Lens(Struct, frozen=True):
    """Where a framework's result object holds the result of the tool."""

    get: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


WHOLE = Lens(lambda result: result, lambda _result, value: value)
_NONE: dict[str, Any] = {}


class LiveRun:
    """Satisfies `wire.listeners.Run` and `contract.tools.ToolRun`."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder
        self.first_results: dict[str, Any] = {}
        """what each tool first returned, for the fault `stale`"""
        self.has_strays = False
        self.exit_status: int | None = None
        """of an agent that ended its process, or tried to"""
        self._interceptor = Interceptor(plan, recorder)
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def begin(self, request: Outgoing) -> Exchange:
        return self._interceptor.begin(request, in_tool=is_inside_tool())

    def wait(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise RunOver

    def end(self) -> None:
        self._over.set()

    def resume(self) -> None:
        """Go on with the next message of a conversation."""
        self._over.clear()

    def call_tool(self, name: str, arguments: Any, function: Callable[[], Any], **more: Any) -> Any:
        """`more`: `call_id`, `lens` and `defaults` of the call, as `_ToolCall` takes them."""
        call = _ToolCall(self, name, arguments, **more)
        with call.recorded():
            if call.delay:
                self.wait(call.delay)
            call.fail()
            return call.result(call.replacement() if call.is_replaced else function())

    async def acall_tool(self, name: str, arguments: Any, function: Callable[[], Awaitable[Any]], **more: Any) -> Any:
        call = _ToolCall(self, name, arguments, **more)
        with call.recorded():
            if call.delay:
                await asyncio.sleep(call.delay)
            call.fail()
            return call.result(call.replacement() if call.is_replaced else await function())


def current_run() -> LiveRun | None:
    """The run that the calling code belongs to; None outside a run."""
    return cast("LiveRun | None", listeners.current_run())


def live_run_for(tool: str) -> LiveRun | None:
    """The run that a call of this tool belongs to; see `tools.run_for`."""
    return cast("LiveRun | None", run_for(tool))


class _ToolCall:
    """A call of a tool from its beginning to its result."""

    def __init__(
        self,
        run: LiveRun,
        name: str,
        arguments: Any,
        *,
        call_id: str | None = None,
        lens: Lens = WHOLE,
        defaults: Mapping[str, Any] = _NONE,
    ) -> None:
        self._run = run
        self._name = name
        self._lens = lens
        self._fault = fault = run.plan.tool_call(name)
        self._number = run.recorder.tool_called(name, plain(arguments), call_id)
        self._attempt = run.plan.attempts.begin(name, {**defaults, **arguments} if defaults else arguments)
        self._has_run = False
        self._began = time.perf_counter()
        self.delay = 0.0
        """seconds before anything else happens"""
        self.is_replaced = fault is not None and effects.payload_of(fault) is not None
        """whether the fault gives the result, so that the tool is not called"""
        if fault is not None and fault.mode in ("timeout", "slow", "error", *effects.BEFORE, *effects.AFTER):
            run.plan.hit(fault, self._attempt)
            self.delay = effects.delay_of(fault, run.plan.random(fault))

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Run this block inside the tool, and record an error that it raises."""
        try:
            with inside_tool(self._name), attempt_scope(self._attempt):
                yield
        except BaseException as error:
            self._attempt.end(failed=True, took_effect=self._has_run)
            self._run.recorder.tool_returned(self._number, one_line(error), True, self._elapsed_ms())
            raise

    def fail(self) -> None:
        """Raise what the fault raises instead of calling the tool."""
        if self._fault is not None and self._fault.mode == "dns_failure":
            raise effects.network_error(self._fault) or ToolFailure
        if self._fault is not None and self._fault.mode == "timeout":
            raise TimeoutError(self._fault.message or f"tool `{self._name}` timed out")
        if self._fault is not None and self._fault.mode == "error":
            raise ToolFailure(f"{self._fault.error_code}: {effects.reason_of(self._fault)}")

    def replacement(self) -> Any:
        assert self._fault is not None
        self._run.plan.hit(self._fault, self._attempt)
        return effects.payload_of(self._fault)

    def result(self, returned: Any) -> Any:
        """The value that the agent receives in place of the tool's result; the reply may also be lost."""
        self._has_run = not self.is_replaced
        lost = effects.network_error(self._fault) if self._fault is not None else None
        if lost is not None:
            raise lost
        value = returned if self.is_replaced else self._lens.get(returned)
        if self._fault is not None and not self.is_replaced:
            value = self._apply_fault(self._fault, value)
        else:
            self._run.first_results.setdefault(self._name, value)
        value = self._apply_attacks(value)
        self._run.recorder.tool_returned(self._number, plain(value), False, self._elapsed_ms())
        self._attempt.end(failed=False, took_effect=self._has_run)
        return value if self.is_replaced else self._lens.put(returned, value)

    def _apply_fault(self, fault: ToolFault, value: Any) -> Any:
        first = self._run.first_results.setdefault(self._name, value)
        changed = value
        if fault.mode == "malformed":
            changed = _truncate_value(value)
        elif fault.mode == "empty":
            changed = effects.empty_value(value)
        elif fault.mode == "wrong_data":
            changed = effects.wrong_data(value, self._run.plan.random(fault))
        elif fault.mode == "stale":
            changed = effects.age_dates(value) if is_same(first, value) else first
        if not is_same(changed, value):
            self._run.plan.hit(fault, self._attempt)
        return changed

    def _apply_attacks(self, value: Any) -> Any:
        for attack in self._run.plan.attacks(on_result_of=self._name):
            text = attack_text(attack, self._run.plan.random(attack))
            changed = _insert_attack(value, text, attack_strategy(attack.strategy, self._fault))
            if not is_same(changed, value):
                self._run.plan.hit(attack)
            value = changed
        return value

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._began) * 1000


def _truncate_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value[: len(value) // 2]
    return effects.truncate_json(value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False))


def _insert_attack(value: Any, text: str, strategy: str) -> Any:
    """An object keeps its type: the attack goes into the longest of its own texts."""
    if isinstance(value, tuple):
        return tuple(attack_result(list(value), text, strategy))
    fields = {name: field for name, field in getattr(value, "__dict__", {}).items() if isinstance(field, str)}
    if isinstance(value, str | dict | list) or not fields:
        return attack_result(value, text, strategy)
    clone = copy.copy(value)
    longest = max(fields, key=lambda name: len(fields[name]))
    clone.__dict__[longest] = combine_texts(fields[longest], text, strategy)
    return clone
