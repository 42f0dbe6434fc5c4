"""HTTP exchanges of an agent, with the faults of its run. Patched libraries and the proxy carry them the same way.

`Interceptor.begin` decides what a request is. A request to a model gets attacks in the request, faults of tools in the
results that it carries (`plan.ResultFaults`), and faults of the model in the provider's own format. Any other request
is a tool's, with faults and attacks in its reply.
"""

from __future__ import annotations

import copy
import time
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bylaw.contract.faults import MODEL, ContextAttack, LlmFault, ToolFault, current_attempt, effects
from bylaw.contract.faults.plan import Plan, ResultFaults
from bylaw.contract.faults.recorder import Recorder
from bylaw.contract.faults.texts import (
    altered_text,
    attack_request,
    attack_result,
    attack_strategy,
    attack_text,
    truncate_arguments,
)
from bylaw.wire.exchange import (
    MOST_KEPT,
    Exchange,
    Incoming,
    Outgoing,
    decompress,
    is_stream,
    json_of,
    json_reply,
    origin_of,
    refuse_compression,
    replace_body,
)
from bylaw.wire.formats import model_call
from bylaw.wire.formats.base import Json, WireFormat, read_events, words

_GATEWAY_TIMEOUT = 504
_MOST_COMPARED = 64 * 1024
"""bytes of a request that are stored to compare it with others; of a longer one, its digest"""
_CONTENT_MODES = ("truncated_response", "empty", "garbage", "response_drift", "malformed_tool_call", "stream_cut")


class Interceptor:
    """Begins the exchanges of one run."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder
        self._results = ResultFaults(plan)
        self._first_bodies: dict[str, bytes] = {}
        self._buffers_all = any(f.mode == "stale" for f in plan.injection.faults if isinstance(f, ToolFault))
        """whether every reply is stored, for a fault that answers an earlier one again"""

    def begin(self, request: Outgoing, *, in_tool: bool = False, model: str | None = None) -> Exchange:
        """`in_tool`: a tool that was called by name makes the request. `model`: what answers if it is not the URL."""
        asked = model_call(request)
        if asked is not None:
            self.plan.asks_model = True
            self.plan.models.add(model or origin_of(request.url))
            if self.recorder.knows_tools:
                self._results.is_off = True
            return ModelExchange(request, *asked, self.plan, self.recorder, self._results)
        self._results.is_off = True
        fault = self.plan.request(request.url, in_tool=in_tool)
        attacks = [] if in_tool else self.plan.attacks(on_result_of=request.url)
        return ToolExchange(
            request, fault, attacks, self.plan, self.recorder, self._first_bodies, buffers=self._buffers_all
        )


class ModelExchange(Exchange):
    def __init__(
        self, request: Outgoing, wire: WireFormat, asked: Json, plan: Plan, recorder: Recorder, results: ResultFaults
    ) -> None:
        super().__init__(request)
        self._wire = wire
        self._plan = plan
        self._recorder = recorder
        self._began = time.perf_counter()
        self._body = bytearray()
        self._status = 200
        self._headers: dict[str, str] = {}
        self._is_over = False
        self._results = results
        self._asked = copy.deepcopy(asked)
        changed, tools_delay = results.apply(wire, self._asked)
        self._attempt = plan.attempts.begin(MODEL)
        self._fault = plan.model_call()
        if self._fault is not None:
            self._prepare(self._fault)
        self.delay += tools_delay
        is_sent = self.fails is None and self.reply is None
        self.request = refuse_compression(request)
        if (is_sent and self._attack()) or changed:  # an attack in a request that is never sent would have no effect
            body = msgspec.json.encode(self._asked)
            headers = {**self.request.headers, "content-length": str(len(body))}
            self.request = Outgoing(request.method, request.url, headers, body)

    def _attack(self) -> bool:
        """Put the attacks that are due into the request; whether there were any."""
        hit = False
        for attack in self._plan.attacks():
            if attack_request(self._wire, self._asked, attack, self._plan.random(attack)):
                self._plan.hit(attack)
                hit = True
        return hit

    def _prepare(self, fault: LlmFault) -> None:
        if fault.mode in _CONTENT_MODES or fault.mode in effects.AFTER:
            self.buffers = True
            return
        self._plan.hit(fault, self._attempt)
        if effects.prepare(self, fault, self._plan.random(fault)):
            return
        if fault.mode == "slow_first_token":
            self.first_byte_delay = effects.delay_of(fault)
            return
        self.delay = effects.delay_of(fault)
        if fault.mode == "timeout":
            self.fails = "timeout"
            self.late = self._wire.error(_GATEWAY_TIMEOUT, fault.message or "The request timed out")
            return
        assert fault.error_code is not None, "the reader fills it in"
        self.reply = self._wire.error(fault.error_code, fault.message)

    # The reply

    def answer(self, reply: Incoming) -> Incoming:
        body, fault = decompress(reply), self._fault
        if fault is not None and fault.mode in effects.AFTER and effects.strike(self, fault, reply):
            self._plan.hit(fault, self._attempt)
        elif fault is not None and fault.mode in _CONTENT_MODES and body is not None and reply.status < 400:
            reply = self._altered(reply, body, fault)
        self.head(reply.status, reply.headers)
        if self.fails is None:
            self.chunk(reply.body if self.cut_after is None else reply.body[: self.cut_after])
        return reply

    def _altered(self, reply: Incoming, body: bytes, fault: LlmFault) -> Incoming:
        """The reply as the fault changes it; the same object if it changes nothing."""
        streams = is_stream(reply.headers)
        answer = self._wire.collect(read_events(body)) if streams else json_of(body)
        if not isinstance(answer, dict):
            return reply
        if fault.mode == "stream_cut":
            self.cut_after = self._cut(body, fault) if streams else max(1, len(body) // 2)
            if self.cut_after is None:
                return reply
            self._plan.hit(fault, self._attempt)
            return replace_body(reply, body)
        changed = self._changed(answer, fault)
        if changed == answer:
            return reply
        self._plan.hit(fault, self._attempt)
        return replace_body(reply, b"".join(self._wire.stream(changed)) if streams else msgspec.json.encode(changed))

    def _changed(self, answer: Json, fault: LlmFault) -> Json:
        wire, random = self._wire, self._plan.random(fault)
        if fault.mode == "malformed_tool_call":
            return wire.with_broken_calls(answer, truncate_arguments)
        if fault.mode == "empty":
            return wire.without_content(answer)
        altered = wire.with_text(answer, lambda text: altered_text(text, fault, random))
        if altered == answer or fault.mode != "truncated_response":
            return altered
        return wire.with_text(altered, lambda text: text, cut_short=True)

    def _cut(self, body: bytes, fault: LlmFault) -> int | None:
        """The number of bytes until enough words have passed; None if the answer has no more words than that.

        An answer that consists of calls alone has no words: it is broken off in the middle.
        """
        text, events = "", read_events(body)
        for event in events:
            text += self._wire.text_in(event)
            if len(words(text)) >= max(1, fault.max_tokens or 0):
                return event.end if event is not events[-1] else None
        return None if text else events[len(events) // 2].end if len(events) > 1 else None

    # The record

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._status, self._headers = status, headers

    def chunk(self, data: bytes) -> None:
        if len(self._body) < MOST_KEPT:
            self._body += data

    def end(self, *, error: str | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        latency = (time.perf_counter() - self._began) * 1000
        # the client of a body that broke off raises an exception, also if all of its JSON has come
        reply = self._read_back() if error is None or is_stream(self._headers) else None
        if reply is not None:
            self._results.note_calls(self._wire, reply)
        self._attempt.end(failed=reply is None, took_effect=False)
        self._recorder.model_turn(self._asked, reply, latency, self._wire.name)

    def _read_back(self) -> Json | None:
        """The answer that the agent received, complete or not; None if it is no answer."""
        body = decompress(Incoming(self._status, self._headers, bytes(self._body)))
        if body is None or self._status >= 400 or not body:
            return None
        if is_stream(self._headers) or body.lstrip()[:5] in (b"data:", b"event"):
            return self._wire.collect(read_events(body))
        answer = json_of(body)
        return answer if isinstance(answer, dict) else None


class ToolExchange(Exchange):
    def __init__(
        self,
        request: Outgoing,
        fault: ToolFault | None,
        attacks: list[ContextAttack],
        plan: Plan,
        recorder: Recorder,
        first_bodies: dict[str, bytes],
        *,
        buffers: bool,
    ) -> None:
        super().__init__(request)
        self._fault = fault
        self._attacks = attacks
        self._plan = plan
        self._recorder = recorder
        self._first_bodies = first_bodies
        """the first body of each resource in this run"""
        self._status: int | None = None
        self._began = time.perf_counter()
        self._is_over = False
        self._outer = current_attempt()
        parts = urlsplit(request.url)
        target = f"{request.method} {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        body = request.body if len(request.body) <= _MOST_COMPARED else blake2b(request.body).hexdigest().encode()
        asked = {"query": parts.query, "body": body.decode("utf-8", "replace")}
        self._attempt = self._outer or plan.attempts.begin(target, asked)
        """the request, or the call of the tool that makes it"""
        self.buffers = bool(attacks) or buffers
        if fault is not None:
            self._prepare(fault)
        if self.buffers:
            self.request = refuse_compression(request)

    def _prepare(self, fault: ToolFault) -> None:
        if fault.mode not in ("timeout", "slow", "error", *effects.BEFORE):
            self.buffers = True
            return
        self._hit(fault)
        if effects.prepare(self, fault, self._plan.random(fault)):
            return
        self.delay = effects.delay_of(fault)
        if fault.mode == "timeout":
            self.fails = "timeout"
        elif fault.mode == "error":
            self.reply = json_reply(fault.error_code, {"error": effects.reason_of(fault)})
            self._status = fault.error_code

    def _hit(self, fault: ToolFault) -> None:
        self._plan.hit(fault)
        if self._outer is None:
            self._attempt.hit(fault)
        else:
            self._attempt.hit_inside()

    def answer(self, reply: Incoming) -> Incoming:
        self._status = reply.status
        if self._fault is not None and self._fault.mode in effects.AFTER:
            if effects.strike(self, self._fault, reply):
                self._hit(self._fault)
            return reply
        body = decompress(reply)
        if body is None:
            return reply
        parts = urlsplit(self.request.url)
        resource = f"{self.request.method} {parts.scheme}://{parts.netloc}{parts.path}"
        first = self._first_bodies.setdefault(resource, body)
        altered = reply
        if self._fault is not None:
            altered = self._altered(reply, body, first, self._fault)
            if altered is not reply:
                self._hit(self._fault)
        for attack in self._attacks:
            altered = self._attacked(altered, attack)
        return altered

    def _altered(self, reply: Incoming, body: bytes, first: bytes, fault: ToolFault) -> Incoming:
        """The reply as the fault changes it; the same object if it changes nothing."""
        value = json_of(body)
        is_json = value is not msgspec.UNSET
        text = body.decode("utf-8", "replace")
        if (payload := effects.payload_of(fault)) is not None:
            return _replace_payload(reply, payload, as_json=is_json)
        match fault.mode:
            case "malformed":
                changed: bytes = effects.truncate_json(text).encode()
            case "empty":
                changed = b""
            case "stale":
                changed = (
                    first if first != body else _encode_body(effects.age_dates(value if is_json else text), body, value)
                )
            case "wrong_data":
                random = self._plan.random(fault)
                changed = _encode_body(effects.wrong_data(value if is_json else text, random), body, value)
            case _:
                return reply
        return reply if changed == body else replace_body(reply, changed)

    def _attacked(self, reply: Incoming, attack: ContextAttack) -> Incoming:
        body = decompress(reply)
        if body is None:
            return reply
        value = json_of(body)
        is_json = value is not msgspec.UNSET
        text = attack_text(attack, self._plan.random(attack))
        strategy = attack_strategy(attack.strategy, self._fault)
        changed = attack_result(value if is_json else body.decode("utf-8", "replace"), text, strategy)
        self._plan.hit(attack)
        return replace_body(reply, msgspec.json.encode(changed) if is_json else str(changed).encode())

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._status = status

    def end(self, *, error: str | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        request = self.request
        if self._outer is None:
            has_arrived = self.reply is None and self._status is not None
            is_refused = error is not None or self._status is None or self._status >= 400
            self._attempt.end(failed=is_refused, took_effect=has_arrived and (self._status or 500) < 400)
        data: dict[str, Any] = {"method": request.method, "url": request.url, "status": self._status}
        data["latency_ms"] = (time.perf_counter() - self._began) * 1000
        if self._fault is not None:
            data["fault"] = self._fault.id
        if error is not None or self.fails is not None:
            data["error"] = error or self.fails
        self._recorder.note("http", data)


def _encode_body(changed: Any, body: bytes, value: Any) -> bytes:
    """A changed value as a body; the same bytes if it did not change. `value`: the body as JSON, or UNSET."""
    if value is msgspec.UNSET:
        return str(changed).encode()
    return body if changed == value else msgspec.json.encode(changed)


def _replace_payload(reply: Incoming, payload: Any, *, as_json: bool) -> Incoming:
    """The payload instead of the body, as JSON if the real reply was JSON."""
    reply = Incoming(200, reply.headers, b"")
    if as_json or not isinstance(payload, str):
        return replace_body(reply, msgspec.json.encode(payload), content_type="application/json")
    return replace_body(reply, payload.encode(), content_type="text/plain; charset=utf-8")
