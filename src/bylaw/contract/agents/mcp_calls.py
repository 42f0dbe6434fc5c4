"""One `tools/call` of MCP: the fault that hits it, the attacks on its result, and its record.

MCP states a tool's result as content blocks and, optionally, again as structured content.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from bylaw.contract.faults import ContextAttack, ToolFault, effects
from bylaw.contract.faults.plan import Plan
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.faults.texts import as_text, attack_result, attack_strategy, attack_text
from bylaw.wire.exchange import json_of

_TIMED_OUT, _CLOSED = -32001, -32000
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_WRAPPER = "result"
"""servers wrap a value that is not an object under this one key"""
Message: TypeAlias = dict[str, Any]


class McpRun:
    """The MCP calls of one run."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder
        self.first_results: dict[str, Message] = {}
        """what each tool first returned"""

    def begin(self, message: Any) -> McpCall | None:
        """The call that a message of the agent makes; None for any other message."""
        if not isinstance(message, dict) or message.get("method") != "tools/call" or message.get("id") is None:
            return None
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if not isinstance(name, str):
            return None
        return McpCall(message, name, self, self.plan.tool_call(name), self.plan.attacks(on_result_of=name))


class McpCall:
    """The carrier waits `delay`, then answers `reply`, or asks the server and gives its reply to `answer`."""

    def __init__(
        self, message: Message, name: str, run: McpRun, fault: ToolFault | None, attacks: list[ContextAttack]
    ) -> None:
        self.id = message.get("id")
        meta = message["params"].get("_meta")
        self._is_typed = isinstance(meta, dict) and _VERSION_KEY in meta
        """whether results have a type: since 2026-07-28, when requests name the version of the protocol"""
        self.delay = 0.0
        self.reply: Message | None = None
        self._name = name
        self._run = run
        self._fault = fault
        self._attacks = attacks
        self._began = time.perf_counter()
        self._is_over = False
        self._number = run.recorder.tool_called(name, message["params"].get("arguments"))
        self._attempt = run.plan.attempts.begin(name, message["params"].get("arguments"))
        self._took_effect = False
        if fault is not None and fault.mode in ("timeout", "slow", "slow_body", "error", *effects.BEFORE):
            run.plan.hit(fault, self._attempt)
            self.delay = effects.delay_of(fault, run.plan.random(fault))
            self.reply = self._failure(fault)

    def _failure(self, fault: ToolFault) -> Message | None:
        if fault.mode == "error":
            text = f"{fault.error_code}: {effects.reason_of(fault)}"
            result: Message = {"content": [{"type": "text", "text": text}], "isError": True}
            result |= {"resultType": "complete"} if self._is_typed else {}
            return {"jsonrpc": "2.0", "id": self.id, "result": result}
        if fault.mode == "timeout":
            error = {"code": _TIMED_OUT, "message": fault.message or "the request timed out"}
            return {"jsonrpc": "2.0", "id": self.id, "error": error}
        if fault.mode in effects.NETWORK_FAILURES:
            error = {"code": _CLOSED, "message": effects.NETWORK_FAILURES[fault.mode]}
            return {"jsonrpc": "2.0", "id": self.id, "error": error}
        return None

    def is_answered_by(self, message: Any) -> bool:
        return isinstance(message, dict) and message.get("id") == self.id and "method" not in message

    def answer(self, message: Message) -> Message:
        """The server's reply as the agent receives it; the same object if nothing changes it. Ends the call."""
        result = message.get("result")
        self._took_effect = isinstance(result, dict) and result.get("isError") is not True
        if self._fault is not None and self._fault.mode in ("reset", "truncated_body"):
            self._run.plan.hit(self._fault, self._attempt)
            message = self._failure(self._fault) or message
        elif isinstance(result, dict):
            altered = result
            if self._fault is not None:
                altered = self._apply_fault(result, self._fault)
                if altered is not result:
                    self._run.plan.hit(self._fault, self._attempt)
            self._run.first_results.setdefault(self._name, result)
            for attack in self._attacks:
                text = attack_text(attack, self._run.plan.random(attack))
                self._run.plan.hit(attack)
                strategy = attack_strategy(attack.strategy, self._fault)
                altered = _replace_value(altered, attack_result(_value_of(altered), text, strategy))
            message = message if altered is result else {**message, "result": altered}
        self.end(message)
        return message

    def _apply_fault(self, result: Message, fault: ToolFault) -> Message:
        random = self._run.plan.random(fault)
        if (payload := effects.payload_of(fault)) is not None:
            return _replace_value(result, payload)
        match fault.mode:
            case "wrong_data":
                return _change_value(result, lambda value: effects.wrong_data(value, random))
            case "empty":
                return _change_value(result, effects.empty_value)
            case "malformed":
                return _replace_text(result, effects.truncate_json(_text_of(result)))
            case "stale":
                first = self._run.first_results.get(self._name, result)
                return first if first != result else _change_value(result, effects.age_dates)
        return result

    def end(self, message: Message | None) -> None:
        """The agent received this reply, or none. Only the first call counts."""
        if self._is_over:
            return
        self._is_over = True
        latency = (time.perf_counter() - self._began) * 1000
        result = message.get("result") if message is not None else None
        has_failed = not isinstance(result, dict) or result.get("isError") is True
        self._attempt.end(failed=has_failed, took_effect=self._took_effect)
        if isinstance(result, dict):
            self._run.recorder.tool_returned(self._number, _value_of(result), result.get("isError") is True, latency)
        else:
            self._run.recorder.tool_returned(self._number, message and message.get("error"), True, latency)


# The value inside a result


def _value_of(result: Message) -> Any:
    """The value that the tool returned: structured, or parsed from its text, or the text."""
    structured = result.get("structuredContent")
    if isinstance(structured, dict):
        return structured[_WRAPPER] if structured.keys() == {_WRAPPER} else structured
    text = _text_of(result)
    value = json_of(text.encode())
    return text if value is msgspec.UNSET else value


def _text_of(result: Message) -> str:
    blocks = result.get("content")
    texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _replace_value(result: Message, value: Any) -> Message:
    """The result as if the tool had returned this value, in both forms if the real one has both."""
    changed = _replace_text(result, as_text(value))
    structured = result.get("structuredContent")
    if isinstance(structured, dict):
        is_wrapped = structured.keys() == {_WRAPPER} or not isinstance(value, dict)
        changed["structuredContent"] = {_WRAPPER: value} if is_wrapped else value
    return changed


def _replace_text(result: Message, text: str) -> Message:
    """The result with only this text; other blocks, such as images, stay."""
    blocks = result.get("content") if isinstance(result.get("content"), list) else []
    others = [block for block in blocks or () if isinstance(block, dict) and block.get("type") != "text"]
    other_keys = {key: item for key, item in result.items() if key != "structuredContent"}
    return {**other_keys, "content": [{"type": "text", "text": text}, *others] if text else others}


def _change_value(result: Message, change: Callable[[Any], Any]) -> Message:
    """The result with its value changed; the same object if that changes nothing."""
    value = _value_of(result)
    other = change(value)
    return result if other == value else _replace_value(result, other)
