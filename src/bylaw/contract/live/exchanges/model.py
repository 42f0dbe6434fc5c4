"""An exchange with a model: attacks go into the request, faults come back in the provider's own format."""

from __future__ import annotations

import copy
import time

import msgspec

from bylaw.contract.faults import LlmFault
from bylaw.contract.live.attacks import attack_request
from bylaw.contract.live.exchanges.results import ResultAttacks
from bylaw.contract.live.plan import Plan
from bylaw.contract.live.recorder import Recorder
from bylaw.wire.bodies import asking_plainly, is_stream, json_of, unpacked, with_body
from bylaw.wire.exchange import MOST_KEPT, Exchange, Incoming, Outgoing
from bylaw.wire.formats.answers import altered_text, broken_arguments, words_left
from bylaw.wire.formats.base import Json, Wire, pieces
from bylaw.wire.formats.sse import read_events

_DELAYS = {"timeout": 30_000, "slow_first_token": 5_000}
_STATUS = {"rate_limit": 429, "server_error": 500}
_OVERLOADED = 529
_LATE = 504
_CONTENT = ("truncated_response", "empty", "garbage", "response_drift", "malformed_tool_call", "stream_cut")


class ModelExchange(Exchange):
    def __init__(
        self, request: Outgoing, wire: Wire, asked: Json, plan: Plan, recorder: Recorder, results: ResultAttacks
    ) -> None:
        super().__init__(request)
        self._wire = wire
        self._plan = plan
        self._recorder = recorder
        self._began = time.perf_counter()
        self._passed = bytearray()
        self._status = 200
        self._headers: dict[str, str] = {}
        self._over = False
        self._asked = self._attacked(asked, results)
        self._fault = plan.model_call()
        if self._fault is not None:
            self._prepare(self._fault)

    # Before

    def _attacked(self, asked: Json, results: ResultAttacks) -> Json:
        sent = copy.deepcopy(asked)
        changed = results.put_in(self._wire, sent)
        for attack in self._plan.attacks():
            if attack_request(self._wire, sent, attack, self._plan.random(attack)):
                self._plan.hit(attack)
                changed = True
        request = asking_plainly(self.request)
        self.request = request
        if not changed:
            return asked
        body = msgspec.json.encode(sent)
        headers = {**request.headers, "content-length": str(len(body))}
        self.request = Outgoing(request.method, request.url, headers, body)
        return sent

    def _prepare(self, fault: LlmFault) -> None:
        if fault.mode in _CONTENT:
            self.buffers = True
            return
        self._plan.hit(fault)
        delay = (_DELAYS.get(fault.mode, 0) if fault.delay_ms is None else fault.delay_ms) / 1000
        if fault.mode == "slow_first_token":
            self.first_byte_delay = delay
            return
        self.delay = delay
        if fault.mode == "timeout":
            self.fails = "timeout"
            self.late = self._wire.error(_LATE, fault.message or "The request timed out")
        else:
            self.reply = self._wire.error(self._error_status(fault), fault.message)

    def _error_status(self, fault: LlmFault) -> int:
        if fault.error_code is not None:
            return fault.error_code
        return _OVERLOADED if fault.mode == "server_error" and self._wire.name == "anthropic" else _STATUS[fault.mode]

    # After

    def answer(self, reply: Incoming) -> Incoming:
        body = unpacked(reply)
        fault = self._fault
        if fault is not None and fault.mode in _CONTENT and body is not None and reply.status < 400:
            reply = self._altered(reply, body, fault)
        self.head(reply.status, reply.headers)
        self.chunk(reply.body if self.cut_after is None else reply.body[: self.cut_after])
        return reply

    def _altered(self, reply: Incoming, body: bytes, fault: LlmFault) -> Incoming:
        streams = is_stream(reply.headers)
        said = self._wire.collected(read_events(body)) if streams else json_of(body)
        if not isinstance(said, dict):
            return reply
        if fault.mode == "stream_cut":
            self.cut_after = self._cut(body, fault) if streams else max(1, len(body) // 2)
            if self.cut_after is None:
                return reply
            self._plan.hit(fault)
            return with_body(reply, body)
        changed = self._changed(said, fault)
        if changed == said:
            return reply
        self._plan.hit(fault)
        told = b"".join(self._wire.streamed(changed)) if streams else msgspec.json.encode(changed)
        return with_body(reply, told)

    def _changed(self, said: Json, fault: LlmFault) -> Json:
        wire, random = self._wire, self._plan.random(fault)
        if fault.mode == "malformed_tool_call":
            return wire.with_broken_calls(said, broken_arguments) if wire.has_calls(said) else said
        if fault.mode == "empty":
            return wire.without_content(said)
        altered = wire.with_text(said, lambda text: altered_text(text, fault, random))
        if altered == said or fault.mode != "truncated_response":
            return altered
        return wire.with_text(altered, lambda text: text, cut_short=True)

    def _cut(self, body: bytes, fault: LlmFault) -> int | None:
        """The bytes until enough words have passed; None where the answer has no more words than that.

        An answer of calls alone has no words: it is broken off half-way.
        """
        told, events = "", read_events(body)
        for event in events:
            told += self._wire.texts_of(event)
            if len(pieces(told)) >= max(1, words_left(fault)):
                return event.end if event is not events[-1] else None
        return None if told else events[len(events) // 2].end if len(events) > 1 else None

    # The record

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._status, self._headers = status, headers

    def chunk(self, data: bytes) -> None:
        if len(self._passed) < MOST_KEPT:
            self._passed += data

    def end(self, *, error: str | None = None) -> None:
        if self._over:
            return
        self._over = True
        latency = (time.perf_counter() - self._began) * 1000
        self._recorder.model_turn(self._asked, self._read_back(), latency, self._wire.name)

    def _read_back(self) -> Json | None:
        """What the agent got to read, whole or not; None where that is no answer."""
        reply = Incoming(self._status, self._headers, bytes(self._passed))
        body = unpacked(reply)
        if body is None or self._status >= 400 or not body:
            return None
        if is_stream(self._headers) or body.lstrip()[:5] in (b"data:", b"event"):
            return self._wire.collected(read_events(body))
        said = json_of(body)
        return said if isinstance(said, dict) else None
