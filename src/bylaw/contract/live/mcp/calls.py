"""One `tools/call` of the agent's: the fault that hits it, the attacks inside its result, and its record."""

from __future__ import annotations

import time
from typing import Any

from bylaw.contract.faults import ContextAttack, ToolFault
from bylaw.contract.live.attacks import attack_result, attack_text
from bylaw.contract.live.effects import DEFAULT_PAYLOAD, aged, emptied, malformed, wrong_data
from bylaw.contract.live.mcp.results import changed, failed, text_of, value_of, with_text, with_value
from bylaw.contract.live.plan import Plan
from bylaw.contract.live.recorder import Recorder

_DELAYS = {"timeout": 30_000, "slow": 5_000}
_TIMED_OUT = -32001
Message = dict[str, Any]


class McpCall:
    """What the carrier does: wait `delay`, then answer `reply`, or ask the server and give its reply to `answer`."""

    def __init__(
        self, message: Message, name: str, run: McpRun, fault: ToolFault | None, attacks: list[ContextAttack]
    ) -> None:
        self.id = message.get("id")
        self.delay = 0.0
        self.reply: Message | None = None
        self._name = name
        self._run = run
        self._fault = fault
        self._attacks = attacks
        self._began = time.perf_counter()
        self._over = False
        self._token = run.recorder.tool_called(name, message["params"].get("arguments"))
        if fault is not None:
            self._prepare(fault)

    def _prepare(self, fault: ToolFault) -> None:
        if fault.mode not in ("timeout", "slow", "error"):
            return
        self._run.plan.hit(fault)
        self.delay = (_DELAYS.get(fault.mode, 0) if fault.delay_ms is None else fault.delay_ms) / 1000
        if fault.mode == "error":
            self.reply = self._said(failed(f"{fault.error_code}: {fault.message or 'injected failure'}"))
        elif fault.mode == "timeout":
            error = {"code": _TIMED_OUT, "message": fault.message or "the request timed out"}
            self.reply = {"jsonrpc": "2.0", "id": self.id, "error": error}

    def is_answered_by(self, message: Any) -> bool:
        return isinstance(message, dict) and message.get("id") == self.id and "method" not in message

    def answer(self, message: Message) -> Message:
        """The server's reply as the agent is to see it."""
        result = message.get("result")
        if not isinstance(result, dict):
            return message
        altered = result
        if self._fault is not None:
            altered = self._altered(result, self._fault)
            if altered is not result:
                self._run.plan.hit(self._fault)
        self._run.first.setdefault(self._name, result)
        for attack in self._attacks:
            altered = self._attacked(altered, attack)
        return message if altered is result else {**message, "result": altered}

    def _altered(self, result: dict[str, Any], fault: ToolFault) -> dict[str, Any]:
        random = self._run.plan.random(fault)
        match fault.mode:
            case "malicious_response":
                return with_value(result, DEFAULT_PAYLOAD if fault.payload is None else fault.payload)
            case "wrong_data" if fault.payload is not None:
                return with_value(result, fault.payload)
            case "wrong_data":
                return changed(result, lambda value: wrong_data(value, random))
            case "empty":
                return changed(result, emptied)
            case "malformed":
                return with_text(result, malformed(text_of(result)))
            case "stale":
                first = self._run.first.get(self._name, result)
                return first if first != result else changed(result, aged)
        return result

    def _attacked(self, result: dict[str, Any], attack: ContextAttack) -> dict[str, Any]:
        text = attack_text(attack, self._run.plan.random(attack))
        self._run.plan.hit(attack)
        return with_value(result, attack_result(value_of(result), text, attack.strategy))

    def end(self, message: Message | None) -> None:
        """The agent got this reply; None: it got none. What follows the first call is ignored."""
        if self._over:
            return
        self._over = True
        latency = (time.perf_counter() - self._began) * 1000
        result = message.get("result") if message is not None else None
        if isinstance(result, dict):
            self._run.recorder.tool_returned(self._token, value_of(result), result.get("isError") is True, latency)
        else:
            self._run.recorder.tool_returned(self._token, message and message.get("error"), True, latency)

    def _said(self, result: dict[str, Any]) -> Message:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}


class McpRun:
    """The calls of one run."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder
        self.first: dict[str, dict[str, Any]] = {}
        """what each tool first returned"""

    def begin(self, message: Any) -> McpCall | None:
        """The call that a message of the agent's makes; None for any other message."""
        if not isinstance(message, dict) or message.get("method") != "tools/call" or message.get("id") is None:
            return None
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if not isinstance(name, str):
            return None
        return McpCall(message, name, self, self.plan.tool_call(name), self.plan.attacks(on_result_of=name))
