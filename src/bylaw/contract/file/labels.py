"""What a report calls a fault: `search: error 503 on call 2`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from bylaw.contract.faults import ContextAttack, Fault, LlmFault, Timing, ToolFault

AnyOne = TypeVar("AnyOne", bound=Fault)

_MAX = 60


def tool_label(fault: ToolFault) -> str:
    target = fault.match_url or ("every tool" if fault.tool == "*" else fault.tool) or ""
    detail = f" {fault.error_code}" if fault.mode == "error" else _duration(fault.delay_ms)
    return f"{_clip(target)}: {_words(fault.mode)}{detail}{_timing(fault.timing)}"


def llm_label(fault: LlmFault) -> str:
    detail = _duration(fault.delay_ms)
    if fault.error_code is not None:
        detail = f" {fault.error_code}"
    elif fault.max_tokens is not None:
        detail = f" to {fault.max_tokens} words"
    elif fault.drift_type is not None:
        detail = f" ({_words(fault.drift_type)})"
    return f"model: {_words(fault.mode)}{detail}{_timing(fault.timing)}"


def attack_label(attack: ContextAttack) -> str:
    detail = f" of {attack.inject_tokens} words" if attack.inject_tokens else ""
    place = f" in results of {_clip(attack.tool)}" if attack.tool else ""
    return f"context: {_words(attack.type)}{detail}{place}{_timing(attack.timing)}"


def distinct(faults: Iterable[AnyOne]) -> tuple[AnyOne, ...]:
    """The same faults; those with one label are numbered."""
    faults = tuple(faults)
    total = Counter(fault.label for fault in faults)
    seen: Counter[str] = Counter()
    return tuple(_numbered(fault, seen) if total[fault.label] > 1 else fault for fault in faults)


def _numbered(fault: AnyOne, seen: Counter[str]) -> AnyOne:
    seen[fault.label] += 1
    return replace(fault, label=f"{fault.label} #{seen[fault.label]}")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _duration(milliseconds: int | None) -> str:
    return "" if milliseconds is None else f" {milliseconds} ms"


def _timing(timing: Timing) -> str:
    parts = []
    if timing.after_calls:
        parts.append(f" after {timing.after_calls} call{'s' if timing.after_calls > 1 else ''}")
    if timing.nth is not None:
        calls = ", ".join(map(str, timing.nth[:5])) + ("…" if len(timing.nth) > 5 else "")
        parts.append(f" on call{'s' if len(timing.nth) > 1 else ''} {calls}")
    if timing.probability < 1:
        parts.append(f" with probability {timing.probability:g}")
    return "".join(parts)


def _clip(text: str) -> str:
    return text if len(text) <= _MAX else f"{text[: _MAX - 1]}…"
