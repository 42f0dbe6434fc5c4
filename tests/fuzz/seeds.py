"""Well-formed inputs to start from: a small trace in every format, and a rule file with every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from bylaw.traces import FORMATS
from tests.fuzz.foreign import foreign_seeds, other_seeds
from tests.support.yaml_files import load_yaml

CASES = Path(__file__).parents[1] / "cases/formats"

TRACES: list[str | None] = [*[None] * 9, *FORMATS]
"""formats forced on a mutated trace; None lets the reader detect"""

_CALL = {"type": "tool_use", "id": "c1", "name": "refund", "input": {"order": "A-1", "amount": 45}}
_CHAT: list[Any] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "refund A-1"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": "A-1"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {"role": "assistant", "content": '{"a": 1}'},
]
_ANTHROPIC: list[Any] = [
    {"role": "user", "content": "refund A-1"},
    {"role": "assistant", "content": [{"type": "text", "text": "one moment"}, _CALL], "stop_reason": "tool_use"},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok", "is_error": False}]},
    {"role": "assistant", "content": "done", "usage": {"input_tokens": 3, "output_tokens": 4}},
]
_EVENTS: list[Any] = [
    {"type": "user_message", "content": "refund"},
    {"type": "agent_message", "content": "one moment"},
    {"type": "tool_call", "name": "refund", "args": {"amount": 45}},
    {"type": "tool_result", "name": "refund", "content": "ok"},
    {"type": "agent_message", "content": "done"},
]


def _agentlog() -> list[Any]:
    def record(kind: str, payload: Any, **meta: Any) -> Any:
        ts = "2026-05-04T00:33:15.542Z"
        return {
            "version": "0.1",
            "id": f"sha256:{0:064x}",
            "kind": kind,
            "ts": ts,
            "parent": None,
            "meta": meta,
            "payload": payload,
        }

    usage = {"input_tokens": 30, "output_tokens": 8, "thinking_tokens": 2, "cached_input_tokens": 3}
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "params": {"amount": 5}, "tools": []}
    response = {
        "model": "m",
        "content": [{"type": "text", "text": "ok"}, _CALL],
        "stop_reason": "tool_use",
        "usage": usage,
    }
    call = {"tool_name": "refund", "tool_call_id": "c2", "arguments": {"amount": 5}}
    return [
        record("metadata", {"sdk": {"name": "x"}}),
        record("chat_request", request, session_id="s1"),
        record("chat_response", response, session_id="s1"),
        record("tool_call", call),
        record("tool_result", {"tool_call_id": "c2", "output": "ok", "is_error": False, "latency_ms": 3}),
        record("chat_request", request),
        record("chat_response", {**response, "content": "plain"}),
        record("error", {"source": "llm", "code": "500", "message": "x"}),
    ]


def _bylaw() -> list[Any]:
    return [
        {"bylaw": "trace/1", "complete": "marked", "header": {}},
        {"kind": "session_start", "session": "1", "metadata": {"task": 1}},
        {"kind": "request", "session": "1", "turn": 0, "model": "m", "messages": [{"role": "user", "content": "hi"}]},
        {
            "kind": "response",
            "session": "1",
            "turn": 0,
            "content": [_CALL],
            "calls": ["c1"],
            "usage": {"input_tokens": 1},
        },
        {"kind": "tool_call", "session": "1", "turn": 0, "name": "refund", "call_id": "c1", "arguments": {"amount": 5}},
        {"kind": "tool_result", "session": "1", "turn": 0, "call_id": "c1", "content": "ok"},
        {"kind": "session_end", "session": "1"},
        {"kind": "trace_end", "complete": True},
    ]


def trace_seeds() -> list[tuple[str, bytes]]:
    tau = [{"task_id": 1, "trial": 0, "reward": 1.0, "info": {}, "traj": _CHAT}]
    lines = [
        _agentlog(),
        _bylaw(),
        [{"messages": _CHAT}, {"id": "b", "messages": _CHAT}],
        _CHAT,
        _EVENTS,
        [{"id": "e", "events": _EVENTS}],
    ]
    wholes = [_CHAT, _ANTHROPIC, _EVENTS, tau, {"messages": _ANTHROPIC, "system": "be kind"}, {"trace_events": _EVENTS}]
    found = [(".jsonl", _lines(records)) for records in [*lines, *foreign_seeds()]]
    return [*found, *((".json", json.dumps(w, indent=1).encode()) for w in wholes), *other_seeds(), *_case_seeds()]


def _case_seeds() -> list[tuple[str, bytes]]:
    """The files of the cases of each format."""
    cases = (case for path in sorted(CASES.glob("*.yaml")) for case in load_yaml(path.read_text("utf-8")))
    return [(case.get("suffix", ".jsonl"), case["file"].encode()) for case in cases if "file" in case]


def _lines(records: list[Any]) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


_WHEN = [{"path": "request.params.amount", "op": ">", "value": 4}, {"path": "model", "op": "in", "value": ["m"]}]
RULES: list[dict[str, Any]] = [
    {"id": "a", "kind": "must_call_before", "params": {"first": "confirm", "second": "refund"}, "when": _WHEN},
    {"id": "b", "kind": "must_call_once", "params": {"tool": ["refund", "ref*"]}, "scope": "session"},
    {"id": "c", "kind": "no_call", "params": {"tool": "delete_*"}, "severity": "critical"},
    {"id": "d", "kind": "max_turns", "params": {"n": 1}},
    {"id": "e", "kind": "required_stop_reason", "params": {"allowed": ["tool_use"]}},
    {"id": "f", "kind": "max_total_tokens", "params": {"n": 20}, "scope": "session"},
    {"id": "g", "kind": "must_include_text", "params": {"text": "ok", "ignore_case": True}},
    {"id": "h", "kind": "forbidden_text", "params": {"text": r"\d{3}-\d+", "regex": True}},
    {"id": "i", "kind": "must_match_json_schema", "params": {"schema": {"type": "object", "required": ["a"]}}},
    {"id": "j", "kind": "must_remain_consistent", "params": {"path": "response.tool_calls.*.arguments.amount"}},
    {
        "id": "k",
        "kind": "must_followup",
        "params": {
            "trigger": [{"path": "response.content", "op": "contains", "value": "refund"}],
            "must": {"kind": "text_includes", "text": "done"},
        },
    },
    {"id": "l", "kind": "must_be_grounded", "params": {"retrieval_path": "request.messages.*.content"}},
]
_FORMULAS = [
    "G (tool(refund, args.order = $o, args.amount = $a) -> O[<=10m] result(ref*, args.order = $o, result.n >= $a))",
    "G (tool(refund) -> F[<=3t] text(/do?ne/i)) & F stop_reason(tool_use)",
    'G (tool(refund, args.order = $o) -> (!tool(x, args.order = $o)) S tool(y, args.order = $o)) & F user("refund")',
    "!F (tool(a | b) & X (true U[<=5] seen[<=1h](refund, error = false)))",
    "G (tool(refund, args.order = $o) -> count[<=1d](tool(refund, args.order = $o)) <= 2)",
]
TEMPORAL: list[dict[str, Any]] = [
    *({"id": f"t{i}", "kind": "temporal", "params": {"formula": text}} for i, text in enumerate(_FORMULAS)),
    {"id": "u", "kind": "temporal", "params": {"formula": "G (tool(refund) -> N result(refund))", "over": "turns"}},
    {"id": "v", "kind": "temporal", "params": {"before": "refund", "require": "confirm", "same": ["order"]}},
    {"id": "w", "kind": "temporal", "params": {"pattern": "absence", "p": "refund", "scope": {"after": "done"}}},
]
RULES += TEMPORAL


def rule_seeds() -> list[tuple[str, bytes]]:
    document = {"apiVersion": "v1", "rules": RULES}
    text = yaml.safe_dump(document, sort_keys=False).encode()
    return [
        (".yaml", text),
        (".yaml", text),
        (".yaml", yaml.safe_dump(RULES).encode()),
        (".yaml", yaml.safe_dump(TEMPORAL, sort_keys=False, width=60).encode()),
        (".json", json.dumps(document, indent=2).encode()),
    ]
