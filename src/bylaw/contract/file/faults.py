"""A scenario's `tool_faults`, `llm_faults` and `context_attacks` → faults with ids and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from bylaw.contract.faults import ContextAttack, Fault, LlmFault, Timing, ToolFault
from bylaw.contract.file.labels import attack_label, llm_label, tool_label
from bylaw.contract.file.modes import ATTACK, LLM_FAULT, TARGET, TOOL_FAULT
from bylaw.contract.file.sequences import read_sequence
from bylaw.contract.file.types import report_never_fires
from bylaw.contract.file.variants import Variant
from bylaw.rules.located import Entry, ListNode, MapNode, Node
from bylaw.rules.params import Context, Values
from bylaw.rules.readers import report_wrong_type

AnyOne = TypeVar("AnyOne", bound=Fault)

_TARGET_KEYS = {param.name for param in TARGET}


def read_tool_faults(entry: Entry | None, context: Context) -> tuple[ToolFault, ...]:
    return _each(entry, "tool_faults", context, _tool_faults)


def read_llm_faults(entry: Entry | None, context: Context) -> tuple[LlmFault, ...]:
    return _each(entry, "llm_faults", context, _llm_faults)


def read_attacks(entry: Entry | None, context: Context) -> tuple[ContextAttack, ...]:
    """A list, or a mapping from the types to what each takes."""
    if entry is None or not isinstance(entry.value, MapNode):
        return _each(entry, "context_attacks", context, _attacks)
    found: list[ContextAttack] = []
    for key, own in entry.value.entries.items():
        tag = ATTACK.tag.read(own.key, "context_attacks", context)
        read = ATTACK.read(own.value, context, tag=tag) if tag else None
        found += _attack(f"context_attacks.{key}", read, context)
    return tuple(found)


def _each(
    entry: Entry | None, key: str, context: Context, read: Callable[[str, Node, Context], list[AnyOne]]
) -> tuple[AnyOne, ...]:
    if entry is None:
        return ()
    if not isinstance(entry.value, ListNode):
        report_wrong_type(entry.value, f"`{key}`", "a list", context.problems, help="start each fault with `- `")
        return ()
    items = enumerate(entry.value.items)
    return tuple(fault for number, item in items for fault in read(f"{key}[{number}]", item, context))


def _tool_faults(id: str, node: Node, context: Context) -> list[ToolFault]:
    if isinstance(node, MapNode):
        _warn_two_targets(node, context)
    if isinstance(node, MapNode) and "sequence" in node.entries:
        steps = read_sequence(node, context)
        return [
            _tool_fault(f"{id}.sequence[{call - 1}]", {**target, **step.values, "nth": (call,)}, step)
            for target, call, step in steps
        ]
    read = TOOL_FAULT.read(node, context)
    if read is None or not _can_fire(read, context) or not _TARGET_KEYS & read.values.keys():
        return []
    return [_tool_fault(id, read.values, read)]


def _warn_two_targets(node: MapNode, context: Context) -> None:
    tool = node.entries.get("tool")
    if tool is None or "match_url" not in node.entries or getattr(tool.value, "value", None) == "*":
        return
    context.problems.warn(
        code="key-not-used",
        message="`tool` of a tool fault is not used: `match_url` beside it decides which requests are hit",
        at=tool.key,
    )


def _tool_fault(id: str, values: Values, read: Variant) -> ToolFault:
    keys = ("delay_ms", "error_code", "message", "payload")
    fault = ToolFault(
        id=id,
        label="",
        mode=read.tag,  # type: ignore[arg-type]  # one of the table's keys
        tool=values.get("tool"),
        match_url=values.get("match_url"),
        timing=_timing(values),
        span=read.node.head,
        **{key: values[key] for key in keys if key in values},
    )
    return _labelled(fault, tool_label(fault))


def _llm_faults(id: str, node: Node, context: Context) -> list[LlmFault]:
    read = LLM_FAULT.read(node, context)
    if read is None or not _can_fire(read, context):
        return []
    values = read.values
    if read.tag == "response_drift":
        values = _drift(read, context)
    keys = ("delay_ms", "error_code", "message", "max_tokens", "drift_type", "direction", "factor")
    fault = LlmFault(
        id=id,
        label="",
        mode=read.tag,  # type: ignore[arg-type]  # one of the table's keys
        timing=_timing(values),
        span=read.node.head,
        **{key: values[key] for key in keys if key in values},
    )
    return [_labelled(fault, llm_label(fault))]


def _drift(read: Variant, context: Context) -> Values:
    if read.values["drift_type"] == "verbosity_shift":
        return {"direction": "expand", **read.values}
    for key in ("direction", "factor"):
        if entry := read.node.entries.get(key):
            context.problems.warn(
                code="key-not-used",
                message=f"`{key}` of an LLM fault is not used: it belongs to `drift_type: verbosity_shift`",
                at=entry.key,
            )
    return read.values


def _attacks(id: str, node: Node, context: Context) -> list[ContextAttack]:
    return _attack(id, ATTACK.read(node, context), context)


def _attack(id: str, read: Variant | None, context: Context) -> list[ContextAttack]:
    if read is None or not read.values["enabled"] or not _can_fire(read, context):
        return []
    keys = ("payloads", "inject_tokens", "inject_at", "strategy", "tool")
    attack = ContextAttack(
        id=id,
        label="",
        type=read.tag,  # type: ignore[arg-type]  # one of the table's keys
        timing=_timing(read.values),
        span=read.node.head,
        **{key: read.values[key] for key in keys if key in read.values},
    )
    return [_labelled(attack, attack_label(attack))]


def _timing(values: Values) -> Timing:
    return Timing(
        probability=values.get("probability", 1.0), after_calls=values.get("after_calls", 0), nth=values.get("nth")
    )


def _can_fire(read: Variant, context: Context) -> bool:
    timing = _timing(read.values)
    if timing.nth is None or timing.nth[-1] > timing.after_calls:
        return True
    calls = f"after {timing.after_calls} calls and only on call {timing.nth[-1]}"
    report_never_fires(read.node.entries["nth"].value, calls, context.problems)
    return False


def _labelled(fault: AnyOne, label: str) -> AnyOne:
    return replace(fault, label=label)
