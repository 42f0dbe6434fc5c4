"""A trace with all that matters in it, as a reader makes it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bylaw.model.events import Trace
from bylaw.traces import load_trace
from bylaw.traces.export import export_trace
from tests.importers.support import lines

USER = {"role": "user", "content": "Refund orders 7 and 8."}
SYSTEM = {"role": "system", "content": "Be kind."}


def use(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


USES = [use("c1", "refund", order=7), use("c2", "refund", order=8)]
AGENT = {"session": "s1", "run": "r1", "agent": "support"}
BELOW = {"session": "s1", "run": "r2", "parent_run": "r1", "agent": "mailer", "parent_agent": "support"}
USAGE = {"input_tokens": 40, "output_tokens": 9, "cached_input_tokens": 30, "reasoning_tokens": 4}
RECORDED: list[dict[str, Any]] = [
    {"bylaw": "trace/1", "name": "refunds"},
    {"kind": "session_start", "session": "s1", "at": "2026-01-01T00:00:00Z", "metadata": {"user": 1}},
    {
        "kind": "request",
        **AGENT,
        "at": "2026-01-01T00:00:01Z",
        "model": "m",
        "params": {"temperature": 0, "max_tokens": 100, "logit_bias": {}},
        "messages": [SYSTEM, USER],
        "tools": [{"name": "refund", "input_schema": {"type": "object"}}],
    },
    {
        "kind": "response",
        **AGENT,
        "at": "2026-01-01T00:00:03Z",
        "model": "m-2",
        "content": [{"type": "thinking", "text": "two"}, {"type": "text", "text": "At once."}, *USES],
        "stop_reason": "tool_use",
        "latency_ms": 2000,
        "usage": USAGE,
    },
    {"kind": "tool_result", **AGENT, "at": "2026-01-01T00:00:04Z", "call_id": "c1", "content": "done"},
    {
        "kind": "tool_result",
        **AGENT,
        "at": "2026-01-01T00:00:05Z",
        "call_id": "c2",
        "content": {"reason": "no such order"},
        "is_error": True,
    },
    {"kind": "request", **BELOW, "at": "2026-01-01T00:00:06Z", "messages": [{"role": "user", "content": "write"}]},
    {"kind": "response", **BELOW, "at": "2026-01-01T00:00:07Z", "content": "Dear …"},
    {"kind": "annotation", **AGENT, "at": "2026-01-01T00:00:08Z", "label": "score", "data": 0.5},
    {
        "kind": "request",
        **AGENT,
        "at": "2026-01-01T00:00:09Z",
        "messages": [
            SYSTEM,
            USER,
            {"role": "assistant", "content": USES},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}]},
            {"role": "user", "content": "And?"},
        ],
    },
    {
        "kind": "response",
        **AGENT,
        "at": "2026-01-01T00:00:10Z",
        "content": "Order 7 is refunded.",
        "stop_reason": "stop",
    },
    {"kind": "session_end", "session": "s1", "at": "2026-01-01T00:00:11Z"},
]


def refunds() -> Trace:
    return load_trace(lines(*RECORDED))


def exported_seeds() -> list[tuple[str, bytes]]:
    """The same as other formats hold it, with the ends of their names, for fuzzing."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".otlp.jsonl", ".atif.json"):
            path = Path(folder, f"t{suffix}")
            export_trace(refunds(), path)
            found.append((suffix, path.read_bytes()))
    return found
