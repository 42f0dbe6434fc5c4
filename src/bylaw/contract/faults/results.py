"""Faults and attacks on tool results, put into the requests that send them to the model.

An agent whose tools run inside it sends their results to the model and nowhere else. There the model's own call tells
which tool a result belongs to. A result is hit and counted once; later requests send it again, and it is changed in the
same way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from bylaw.contract.faults.attempts import Attempt
from bylaw.contract.faults.effects import NETWORK_FAILURES, aged, delay_of, malformed, payload_of, reason_of, wrong_data
from bylaw.contract.faults.model import ToolFault
from bylaw.contract.faults.plan import Plan
from bylaw.contract.faults.texts import attack_result, attack_text, beside, json_container
from bylaw.wire.formats.base import Json, ResultPlace, WireFormat

_LONGER = ("slow", "slow_body", "jitter")


class _Hit(Struct):
    """What happened to one result."""

    fault: ToolFault | None
    attacks: Sequence[tuple[str, str]]
    """the texts put into it, with their strategies"""
    text: str | None = None
    """what the fault made of it; None before, and if the fault changes nothing"""


class ResultFaults:
    """The tool results in the model requests of one run."""

    def __init__(self, plan: Plan) -> None:
        self.is_off = False
        """tools are called by name or by HTTP, so attacks, and faults on every tool, hit them there"""
        self._plan = plan
        self._names: dict[str, str] = {}
        """the tool of each call that the model made in this run"""
        self._history: frozenset[str] | None = None
        """the calls of the first request: made before this run, or examples"""
        self._hits: dict[str, _Hit] = {}
        self._first_texts: dict[str, str] = {}
        """the first result of each tool, for the fault `stale`"""

    def note_calls(self, wire: WireFormat, reply: Json) -> None:
        """Remember which tools the model called: not every request repeats the call with its result."""
        self._names |= wire.calls(reply)

    def apply(self, wire: WireFormat, request: Json) -> tuple[bool, float]:
        """Change the results in a request, in place; whether any was changed, and seconds to wait."""
        places = list(wire.results(request))
        if self._history is None:
            self._history = frozenset(place.call_id for place in places)
        changed, delay = False, 0.0
        for place in places:
            hit = self._hits.get(place.call_id)
            if hit is None:
                hit = self._hits[place.call_id] = self._decide(place)
                delay += self._strike(place, hit)
            elif hit.text is not None:
                self._put(place, hit)
            for text, strategy in hit.attacks:
                place.alter(lambda result, text=text, how=strategy: str(attack_result(result, text, how)))  # type: ignore[misc]
            changed = changed or hit.text is not None or bool(hit.attacks)
        return changed, delay

    def _decide(self, place: ResultPlace) -> _Hit:
        name = place.name or self._names.get(place.call_id) or ""
        attacks = [] if self.is_off else self._plan.attacks(on_result_of=name)
        for attack in attacks:
            self._plan.hit(attack)
        is_new = name and place.call_id not in (self._history or ())
        fault = self._plan.tool_result(name, every=not self.is_off) if is_new else None
        texts = [(attack_text(one, self._plan.random(one)), beside(one.strategy, fault)) for one in attacks]
        return _Hit(fault, texts)

    def _strike(self, place: ResultPlace, hit: _Hit) -> float:
        """Put the fault into the result for the first time; return the seconds that the tool takes longer."""
        fault, name = hit.fault, place.name or self._names.get(place.call_id) or ""
        text = place.text
        first = self._first_texts.setdefault(name, text)
        attempt = self._begin_attempt(name, place.call_id)
        if fault is None:
            return 0.0
        altered = self._altered(fault, text, first)
        if altered != text:
            hit.text = altered
            self._put(place, hit)
        if altered != text or fault.mode in _LONGER:
            self._plan.hit_on_way_to_model(fault, attempt)
        return delay_of(fault, self._plan.random(fault))

    def _begin_attempt(self, name: str, call_id: str) -> Attempt | None:
        """The call whose result this is; None if it was recorded where it was made, or made before this run."""
        if not name or self.is_off or call_id in (self._history or ()) or self._plan.is_called_by_name(name):
            return None
        attempt = self._plan.attempts.begin(name, call_id=call_id)
        attempt.end(failed=False, took_effect=True)
        return attempt

    def _put(self, place: ResultPlace, hit: _Hit) -> None:
        assert hit.fault is not None and hit.text is not None
        place.put(hit.text, is_error=hit.fault.mode in ("error", "timeout", *NETWORK_FAILURES))

    def _altered(self, fault: ToolFault, text: str, first: str) -> str:
        """The result as the fault changes it; the same text if it changes nothing."""
        inside = json_container(text)
        value = text if inside is None else inside
        if (lost := NETWORK_FAILURES.get(fault.mode)) is not None:
            return json.dumps({"error": lost}) if inside is not None else f"error: {lost}"
        if (payload := payload_of(fault)) is not None:
            return _as_text(payload)
        match fault.mode:
            case "error" | "timeout":
                is_timeout = fault.mode == "timeout"
                status = 504 if is_timeout else fault.error_code
                message = fault.message or ("the tool timed out" if is_timeout else reason_of(status))
                as_json = inside is not None
                return json.dumps({"error": message, "status": status}) if as_json else f"error {status}: {message}"
            case "malformed":
                return malformed(text)
            case "empty":
                return ""
            case "wrong_data":
                return _as_text(wrong_data(value, self._plan.random(fault)))
            case "stale":
                old = aged(value)
                return first if first != text else text if old == value else _as_text(old)
        return text


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
