"""Which fault hits which call of one run, and how often each did.

Whether a fault with a probability fires is computed from the seed, the run, the fault and the number of the call, and
not taken from a stream of random numbers. So calls that happen at the same time cannot change each other's draws.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from random import Random
from typing import Any, TypeVar

from msgspec import Struct

from bylaw.contract.faults import AnyFault, Attempt, Attempts, ContextAttack, Injection, LlmFault, ToolFault, effects
from bylaw.contract.faults.texts import (
    attack_result,
    attack_strategy,
    attack_text,
    combine_texts,
    effective,
    json_container,
)
from bylaw.wire.formats.base import Json, ResultPlace, WireFormat

AnyOne = TypeVar("AnyOne", ToolFault, LlmFault, ContextAttack)


class Plan:
    """The faults of one run. Thread-safe."""

    def __init__(self, injection: Injection) -> None:
        self.injection = injection
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {fault.id: 0 for fault in injection.faults}
        self._fired: dict[str, int] = {fault.id: 0 for fault in injection.faults}
        self._hit_on_way: set[str] = set()
        self.asks_model = False
        """whether a request to a model was seen"""
        self.models: set[str] = set()
        """where requests to models went"""
        self.attempts = Attempts()
        self.called: set[str] = set()
        """the tools that were called by name, where their faults hit them"""

    def tool_call(self, name: str) -> ToolFault | None:
        """The fault that hits this call of a named tool; the first in the contract wins."""
        self.called.add(name)
        return self._first(
            fault for fault in self._of(ToolFault) if fault.match_url is None and _matches(fault.tool, name)
        )

    def tool_result(self, name: str, *, every: bool) -> ToolFault | None:
        """The fault that hits the result of a tool whose call only the model's own answer shows.

        `every`: whether faults on every tool hit it too. None for a tool that is called by name in this run.
        """
        if name in self.called:
            return None
        named = (fault for fault in self._of(ToolFault) if fault.match_url is None and (every or fault.tool != "*"))
        return self._first(fault for fault in named if _matches(fault.tool, name))

    def request(self, url: str, *, in_tool: bool = False) -> ToolFault | None:
        """The fault that hits this HTTP request of a tool.

        A fault on every tool hits requests too, but not those inside a named tool, which it has hit already.
        """
        return self._first(
            fault
            for fault in self._of(ToolFault)
            if (fnmatchcase(url, fault.match_url) if fault.match_url else fault.tool == "*" and not in_tool)
        )

    def model_call(self) -> LlmFault | None:
        """The fault that hits this request to the model."""
        return self._first(self._of(LlmFault))

    def attacks(self, *, on_result_of: str | None = None) -> list[ContextAttack]:
        """The attacks on this request to the model, or, with a tool's name, on that tool's result, in their order.

        A poisoned memory is a message of its own, so no other attack replaces it.
        """
        due = self._due_attacks(on_result_of)
        in_messages = [attack for attack in due if attack.type == "memory_poisoning"]
        return [*effective([attack for attack in due if attack not in in_messages]), *in_messages]

    def _due_attacks(self, on_result_of: str | None = None) -> list[ContextAttack]:
        is_result = on_result_of is not None
        candidates = [fault for fault in self._of(ContextAttack) if (fault.type == "indirect_injection") == is_result]
        if on_result_of is not None:
            candidates = [attack for attack in candidates if _matches(attack.tool, on_result_of)]
        return [attack for attack in candidates if self._is_due(attack)]

    def hit(self, fault: AnyFault, attempt: Attempt | None = None) -> None:
        """Count a fault that was really put into a call: only now has it fired."""
        with self._lock:
            self._fired[fault.id] += 1
        if attempt is not None:
            attempt.hit(fault)

    def hit_on_way_to_model(self, fault: ToolFault, attempt: Attempt | None) -> None:
        """Count a fault that was put into a tool's result after the agent's own code had handled it."""
        self.hit(fault, attempt)
        with self._lock:
            self._hit_on_way.add(fault.id)

    def random(self, fault: AnyFault) -> Random:
        """Random numbers for the values that a fault generates; the same in each run with the same seed."""
        return Random(_digest(self.injection, fault.id, self._seen[fault.id]))

    @property
    def fired(self) -> dict[str, int]:
        with self._lock:
            return dict(self._fired)

    @property
    def fired_in_prompt(self) -> frozenset[str]:
        """The attacks on the context that went into the prompt instead."""
        return frozenset()

    @property
    def fired_on_way_to_model(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._hit_on_way)

    def _of(self, kind: type[AnyOne]) -> list[AnyOne]:
        return [fault for fault in self.injection.faults if isinstance(fault, kind)]

    def _first(self, candidates: Iterable[AnyOne]) -> AnyOne | None:
        """Every candidate counts the call, so that `nth` and `after_calls` of one do not depend on another."""
        due = [fault for fault in candidates if self._is_due(fault)]
        return due[0] if due else None

    def _is_due(self, fault: AnyFault) -> bool:
        with self._lock:
            self._seen[fault.id] += 1
            call = self._seen[fault.id]
        timing = fault.timing
        if call <= timing.after_calls or (timing.nth is not None and call not in timing.nth):
            return False
        return timing.probability >= 1 or _digest(self.injection, fault.id, call) / 2**64 < timing.probability


class PromptPlan(Plan):
    """A plan for an agent whose model calls cannot be seen: attacks on the context go into the prompt instead."""

    @property
    def fired_in_prompt(self) -> frozenset[str]:
        attacks = (fault for fault in self._of(ContextAttack) if fault.type != "indirect_injection")
        return frozenset(fault.id for fault in attacks if self.fired[fault.id])

    def attacks(self, *, on_result_of: str | None = None) -> list[ContextAttack]:
        return [] if on_result_of is None else super().attacks(on_result_of=on_result_of)

    def attack_prompt(self, prompt: str) -> str:
        for attack in effective(self._due_attacks()):
            changed = combine_texts(prompt, attack_text(attack, self.random(attack)), attack.strategy)
            if changed != prompt:
                self.hit(attack)
            prompt = changed
        return prompt


def _matches(pattern: str | None, name: str) -> bool:
    return pattern is None or fnmatchcase(name, pattern)


def _digest(injection: Injection, fault: str, call: int) -> int:
    key = f"{injection.seed}\0{injection.run}\0{fault}\0{call}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest())


# Tool results in the requests that send them to the model
#
# An agent whose tools run inside it sends their results to the model and nowhere else. There the model's own call tells
# which tool a result belongs to. A result is hit and counted once; later requests send it again, and it is changed in
# the same way.


_LONGER = ("slow", "slow_body", "jitter")


class _Hit(Struct):
    """The fault of one result."""

    fault: ToolFault | None
    attacks: Sequence[tuple[str, str]]
    """the texts put into it, with their strategies"""
    text: str | None = None
    """the changed result; None before, and if the fault changes nothing"""


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
                name = place.name or self._names.get(place.call_id) or ""
                hit = self._hits[place.call_id] = self._decide(name, place.call_id)
                delay += self._strike(name, place, hit)
            if hit.fault is not None and hit.text is not None:
                place.put(hit.text, is_error=hit.fault.mode in ("error", "timeout", *effects.NETWORK_FAILURES))
            for text, strategy in hit.attacks:
                place.alter(lambda result, text=text, how=strategy: str(attack_result(result, text, how)))  # type: ignore[misc]
            changed = changed or hit.text is not None or bool(hit.attacks)
        return changed, delay

    def _decide(self, name: str, call_id: str) -> _Hit:
        attacks = [] if self.is_off else self._plan.attacks(on_result_of=name)
        for attack in attacks:
            self._plan.hit(attack)
        is_new = name and call_id not in (self._history or ())
        fault = self._plan.tool_result(name, every=not self.is_off) if is_new else None
        texts = [(attack_text(one, self._plan.random(one)), attack_strategy(one.strategy, fault)) for one in attacks]
        return _Hit(fault, texts)

    def _strike(self, name: str, place: ResultPlace, hit: _Hit) -> float:
        """Decide what the fault makes of the result; return the seconds that the tool takes longer."""
        fault, text = hit.fault, place.text
        first = self._first_texts.setdefault(name, text)
        attempt = self._begin_attempt(name, place.call_id)
        if fault is None:
            return 0.0
        altered = self._altered(fault, text, first)
        if altered != text:
            hit.text = altered
        if altered != text or fault.mode in _LONGER:
            self._plan.hit_on_way_to_model(fault, attempt)
        return effects.delay_of(fault, self._plan.random(fault))

    def _begin_attempt(self, name: str, call_id: str) -> Attempt | None:
        """The call whose result this is; None if it was recorded where it was made, or made before this run."""
        if not name or self.is_off or call_id in (self._history or ()) or name in self._plan.called:
            return None
        attempt = self._plan.attempts.begin(name, call_id=call_id)
        attempt.end(failed=False, took_effect=True)
        return attempt

    def _altered(self, fault: ToolFault, text: str, first: str) -> str:
        """The result as the fault changes it; the same text if it changes nothing."""
        inside = json_container(text)
        value = text if inside is None else inside
        if (lost := effects.NETWORK_FAILURES.get(fault.mode)) is not None:
            return json.dumps({"error": lost}) if inside is not None else f"error: {lost}"
        if (payload := effects.payload_of(fault)) is not None:
            return _to_text(payload)
        match fault.mode:
            case "error" | "timeout":
                status, message = fault.error_code, effects.reason_of(fault)
                if fault.mode == "timeout":
                    status, message = 504, fault.message or "the tool timed out"
                as_json = inside is not None
                return json.dumps({"error": message, "status": status}) if as_json else f"error {status}: {message}"
            case "malformed":
                return effects.truncate_json(text)
            case "empty":
                return ""
            case "wrong_data":
                return _to_text(effects.wrong_data(value, self._plan.random(fault)))
            case "stale":
                old = effects.age_dates(value)
                return first if first != text else text if old == value else _to_text(old)
        return text


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
