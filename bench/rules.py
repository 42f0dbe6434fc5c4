"""The rule sets of the benchmark: one rule of each kind, and many rules about other tools."""

from __future__ import annotations

from itertools import cycle
from typing import Any

ELEVEN: list[dict[str, Any]] = [
    {"kind": "must_call_before", "params": {"first": "confirm_refund_amount", "second": "issue_refund"}},
    {"kind": "must_call_once", "params": {"tool": "close_ticket"}},
    {"kind": "no_call", "params": {"tool": "delete_*"}},
    {"kind": "max_turns", "params": {"n": 100_000_000}},
    {"kind": "required_stop_reason", "params": {"allowed": ["end_turn", "tool_use"]}},
    {"kind": "max_total_tokens", "params": {"n": 10_000_000_000}},
    {"kind": "must_include_text", "params": {"text": "never said"}},
    {"kind": "forbidden_text", "params": {"text": "SSN"}},
    {
        "kind": "must_match_json_schema",
        "params": {"schema": {"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}}},
    },
    {"kind": "must_remain_consistent", "params": {"path": "request.params.amount"}},
    {
        "kind": "must_followup",
        "params": {
            "trigger": [{"path": "response.content", "op": "contains", "value": "quote_total"}],
            "must": {"kind": "tool_call", "tool_name": "confirm_with_user"},
        },
    },
]
GROUNDED = {
    "kind": "must_be_grounded",
    "params": {"retrieval_path": "request.metadata.retrieved_chunks", "min_unigram_precision": 0.01},
}


def rule_set(name: str, scope: str) -> list[dict[str, Any]]:
    """`eleven`, `twelve`, `ten` (rules about tools that occur) or `thousand` (those ten and 990 about other tools)."""
    ten = [ELEVEN[i % 3] for i in range(10)]
    others = [{"kind": kind, "params": _other_tools(i)} for i, kind in zip(range(990), cycle(OTHERS))]
    rules = {"eleven": ELEVEN, "twelve": [*ELEVEN, GROUNDED], "ten": ten, "thousand": [*ten, *others]}[name]
    return [{"id": f"r{i}", "scope": scope, **rule} for i, rule in enumerate(rules)]


OTHERS = ("must_call_before", "no_call")
"""kinds that want nothing of a session in which their tools do not occur; `must_call_once` would be broken in each"""


def _other_tools(i: int) -> dict[str, str]:
    return {"first": f"check_{i}", "second": f"do_{i}"} if i % 2 == 0 else {"tool": f"other_{i}"}
