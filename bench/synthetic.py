"""Synthetic traces in the `.agentlog` format: about 1.4 kB a turn, a tool call in every third, ten turns a session."""

from __future__ import annotations

import json
import random
from pathlib import Path

WORDS = [
    "order", "refund", "customer", "ticket", "parcel", "delivery", "amount", "receipt", "policy", "window",
    "address", "label", "carrier", "return", "exchange", "colour", "size", "broken", "missing", "late", "email",
    "invoice", "payment", "card", "bank", "account", "support", "agent", "answer", "question", "please",
    "thanks",
]  # fmt: skip
TOOLS = ("lookup_order", "confirm_refund_amount", "issue_refund", "send_email")


def write_agentlog(path: Path, turns: int) -> None:
    """The same bytes for the same number of turns, whoever runs it."""
    random.seed(turns)
    with path.open("w", encoding="utf-8") as out:
        out.write(_record("metadata", {"sdk": {"name": "bench"}}, None) + "\n")
        for turn in range(turns):
            session = f"s{turn // 10}"
            out.write(_record("chat_request", _request(turn), session) + "\n")
            out.write(_record("chat_response", _response(turn), session) + "\n")


def _record(kind: str, payload: object, session: str | None) -> str:
    record = {
        "version": "0.1",
        "id": f"sha256:{random.getrandbits(256):064x}",
        "kind": kind,
        "ts": "2026-05-04T00:33:15.542Z",
        "parent": None,
        "meta": {"session_id": session} if session else {},
        "payload": payload,
    }
    return json.dumps(record, separators=(",", ":"))


def _request(turn: int) -> dict[str, object]:
    messages = [{"role": "user", "content": _sentence(12)}, {"role": "assistant", "content": _sentence(12)}]
    return {
        "model": "gpt-4.1",
        "messages": [*messages, {"role": "user", "content": _sentence(10)}],
        "params": {"temperature": 0.2, "max_tokens": 512, "amount": 45},
        "metadata": {"retrieved_chunks": [_sentence(16), _sentence(16)]},
    }


def _response(turn: int) -> dict[str, object]:
    answer = json.dumps({"answer": _sentence(14), "confidence": 0.5})
    blocks: list[dict[str, object]] = [{"type": "text", "text": answer}]
    if turn % 3 == 0:
        tool = TOOLS[1 if turn % 10 == 0 else turn % len(TOOLS)]
        arguments = {"order_id": f"A-{turn}", "amount": 45}
        blocks.append({"type": "tool_use", "id": f"c{turn}", "name": tool, "input": arguments})
    return {
        "model": "gpt-4.1",
        "content": blocks,
        "stop_reason": "end_turn",
        "latency_ms": 50,
        "usage": {"input_tokens": 30, "output_tokens": 8, "thinking_tokens": 0},
    }


def _sentence(length: int) -> str:
    return " ".join(random.choices(WORDS, k=length))
