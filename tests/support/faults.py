"""Faults as the reader of a contract makes them: with its defaults."""

from __future__ import annotations

from typing import Any

from bylaw.contract.faults import ContextAttack, LlmFault, ToolFault
from bylaw.contract.file import Variants
from bylaw.contract.file.faults import ATTACK, LLM_FAULT, TOOL_FAULT


def make_tool_fault(mode: str, **keys: Any) -> ToolFault:
    return ToolFault(**{"id": "tool_faults[0]", "label": mode, "mode": mode, **_defaults(TOOL_FAULT, mode), **keys})


def make_llm_fault(mode: str, **keys: Any) -> LlmFault:
    return LlmFault(**{"id": "llm_faults[0]", "label": mode, "mode": mode, **_defaults(LLM_FAULT, mode), **keys})


def make_attack(type: str, **keys: Any) -> ContextAttack:
    return ContextAttack(**{"id": "context_attacks[0]", "label": type, "type": type, **_defaults(ATTACK, type), **keys})


def _defaults(table: Variants, tag: str) -> dict[str, Any]:
    return {param.name: param.default for param in table.kinds[tag] if param.default is not None}
