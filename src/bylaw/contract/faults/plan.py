"""Which fault hits which call of one run, and how often each did.

Whether a fault with a probability fires is computed from the seed, the run, the fault and the number of the call, and
not taken from a stream of random numbers. So calls that happen at the same time cannot change each other's draws.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import blake2b
from random import Random
from typing import TypeVar

from bylaw.contract.faults.attempts import Attempt, Attempts
from bylaw.contract.faults.model import AnyFault, ContextAttack, Injection, LlmFault, ToolFault
from bylaw.contract.faults.texts import attack_text, combined, effective

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
        self._called: set[str] = set()
        """the tools that were called by name, where their faults hit them"""

    def tool_call(self, name: str) -> ToolFault | None:
        """The fault that hits this call of a named tool; the first in the contract wins."""
        self._called.add(name)
        return self._first(
            fault for fault in self._of(ToolFault) if fault.match_url is None and _matches(fault.tool, name)
        )

    def tool_result(self, name: str, *, every: bool) -> ToolFault | None:
        """The fault that hits the result of a tool whose call only the model's own answer shows.

        `every`: whether faults on every tool hit it too. None for a tool that is called by name in this run.
        """
        if name in self._called:
            return None
        named = (fault for fault in self._of(ToolFault) if fault.match_url is None and (every or fault.tool != "*"))
        return self._first(fault for fault in named if _matches(fault.tool, name))

    def is_called_by_name(self, name: str) -> bool:
        return name in self._called

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
            changed = combined(prompt, attack_text(attack, self.random(attack)), attack.strategy)
            if changed != prompt:
                self.hit(attack)
            prompt = changed
        return prompt


def _matches(pattern: str | None, name: str) -> bool:
    return pattern is None or fnmatchcase(name, pattern)


def _digest(injection: Injection, fault: str, call: int) -> int:
    key = f"{injection.seed}\0{injection.run}\0{fault}\0{call}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest())
