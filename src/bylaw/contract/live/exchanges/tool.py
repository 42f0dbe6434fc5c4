"""An HTTP request of a tool's: its faults, and attacks inside its reply."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bylaw.contract.faults import ContextAttack, ToolFault
from bylaw.contract.live.attacks import attack_result, attack_text
from bylaw.contract.live.effects import DEFAULT_PAYLOAD, aged, malformed, wrong_data
from bylaw.contract.live.plan import Plan
from bylaw.contract.live.recorder import Recorder
from bylaw.wire.bodies import asking_plainly, json_of, unpacked, with_body
from bylaw.wire.exchange import Exchange, Incoming, Outgoing
from bylaw.wire.formats.base import json_reply

_DELAYS = {"timeout": 30_000, "slow": 5_000}
_TEXT = "text/plain; charset=utf-8"


class ToolExchange(Exchange):
    def __init__(
        self,
        request: Outgoing,
        fault: ToolFault | None,
        attacks: list[ContextAttack],
        plan: Plan,
        recorder: Recorder,
        earlier: dict[str, bytes],
        *,
        keeps: bool,
    ) -> None:
        super().__init__(request)
        self._fault = fault
        self._attacks = attacks
        self._plan = plan
        self._recorder = recorder
        self._earlier = earlier
        """the first body that each resource gave in this run"""
        self._status: int | None = None
        self._began = time.perf_counter()
        self._over = False
        self.buffers = bool(attacks) or keeps
        if fault is not None:
            self._prepare(fault)
        if self.buffers:
            self.request = asking_plainly(request)

    def _prepare(self, fault: ToolFault) -> None:
        if fault.mode not in ("timeout", "slow", "error"):
            self.buffers = True
            return
        self._plan.hit(fault)
        self.delay = (_DELAYS.get(fault.mode, 0) if fault.delay_ms is None else fault.delay_ms) / 1000
        if fault.mode == "timeout":
            self.fails = "timeout"
        elif fault.mode == "error":
            self.reply = json_reply(fault.error_code, {"error": fault.message or "injected failure"})
            self._status = fault.error_code

    def answer(self, reply: Incoming) -> Incoming:
        self._status = reply.status
        body = unpacked(reply)
        if body is None:
            return reply
        first = self._earlier.setdefault(self._resource, body)
        altered = reply
        if self._fault is not None:
            altered = self._altered(reply, body, first, self._fault)
            if altered is not reply:
                self._plan.hit(self._fault)
        for attack in self._attacks:
            altered = self._attacked(altered, attack)
        return altered

    @property
    def _resource(self) -> str:
        parts = urlsplit(self.request.url)
        return f"{self.request.method} {parts.scheme}://{parts.netloc}{parts.path}"

    def _altered(self, reply: Incoming, body: bytes, first: bytes, fault: ToolFault) -> Incoming:
        """The reply as the fault leaves it; the same object where it changes nothing."""
        value = json_of(body)
        is_json = value is not msgspec.UNSET
        text = body.decode("utf-8", "replace")
        match fault.mode:
            case "malicious_response":
                return _told(reply, DEFAULT_PAYLOAD if fault.payload is None else fault.payload, as_json=is_json)
            case "malformed":
                changed: bytes = malformed(text).encode()
            case "empty":
                changed = b""
            case "stale":
                changed = first if first != body else _encoded(aged(value) if is_json else aged(text), body, value)
            case "wrong_data" if fault.payload is not None:
                return _told(reply, fault.payload, as_json=is_json)
            case "wrong_data":
                random = self._plan.random(fault)
                changed = _encoded(wrong_data(value if is_json else text, random), body, value)
            case _:
                return reply
        return reply if changed == body else with_body(reply, changed)

    def _attacked(self, reply: Incoming, attack: ContextAttack) -> Incoming:
        body = unpacked(reply)
        if body is None:
            return reply
        value = json_of(body)
        is_json = value is not msgspec.UNSET
        text = attack_text(attack, self._plan.random(attack))
        changed = attack_result(value if is_json else body.decode("utf-8", "replace"), text, attack.strategy)
        self._plan.hit(attack)
        return with_body(reply, msgspec.json.encode(changed) if is_json else str(changed).encode())

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._status = status

    def end(self, *, error: str | None = None) -> None:
        if self._over:
            return
        self._over = True
        request = self.request
        told: dict[str, Any] = {"method": request.method, "url": request.url, "status": self._status}
        told["latency_ms"] = (time.perf_counter() - self._began) * 1000
        if self._fault is not None:
            told["fault"] = self._fault.id
        if error is not None or self.fails is not None:
            told["error"] = error or self.fails
        self._recorder.note("http", told)


def _encoded(changed: Any, body: bytes, value: Any) -> bytes:
    """A changed value as a body; the very same bytes where it did not change."""
    if value is msgspec.UNSET:
        return str(changed).encode()
    return body if changed == value else msgspec.json.encode(changed)


def _told(reply: Incoming, payload: Any, *, as_json: bool) -> Incoming:
    """A payload in place of the body, as JSON where the real reply was JSON."""
    if as_json or not isinstance(payload, str):
        return with_body(
            Incoming(200, reply.headers, b""), msgspec.json.encode(payload), content_type="application/json"
        )
    return with_body(Incoming(200, reply.headers, b""), payload.encode(), content_type=_TEXT)
