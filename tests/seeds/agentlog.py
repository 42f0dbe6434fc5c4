"""`.agentlog` files in short form, and rules judged on them through the public API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bylaw

Turn = dict[str, Any]


def write(path: Path, *turns: Turn) -> Path:
    """A file with these turns.

    A turn has any of `text`, `calls` (names, or names with arguments), `stop`, `usage`, `latency`, and `request`: keys
    of the request. `fresh: true` begins a conversation; any other request carries the earlier messages.
    """
    lines: list[dict[str, Any]] = [{"kind": "metadata", "payload": {"sdk": {"name": "test"}}}]
    messages: list[dict[str, Any]] = []
    for index, turn in enumerate(turns):
        messages = [*([] if turn.get("fresh") else messages), {"role": "user", "content": f"message {index}"}]
        asked = {"model": "m", "messages": messages, "params": {}, **turn.get("request", {})}
        lines += [{"kind": "chat_request", "payload": asked}, _response(turn, index)]
        messages = [*messages, {"role": "assistant", "content": lines[-1]["payload"]["content"]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def _response(turn: Turn, index: int) -> dict[str, Any]:
    calls = [(call, {}) if isinstance(call, str) else call for call in turn.get("calls", ())]
    blocks = [{"type": "text", "text": turn["text"]}] if "text" in turn else []
    blocks += [
        {"type": "tool_use", "id": f"c{index}-{k}", "name": name, "input": given}
        for k, (name, given) in enumerate(calls)
    ]
    payload = {
        "model": "m",
        "content": blocks,
        "stop_reason": turn.get("stop", "tool_use" if calls else "end_turn"),
        "latency_ms": turn.get("latency", 10),
        "usage": turn.get("usage", {"input_tokens": 10, "output_tokens": 5, "thinking_tokens": 0}),
    }
    return {"kind": "chat_response", "payload": payload}


def load(rules: Any, folder: Path) -> Any:
    """Rules as text (a policy file, as people have it), or one rule or several as mappings."""
    if isinstance(rules, str):
        policy = folder / "policy.yaml"
        policy.write_text(rules, "utf-8")
        return bylaw.load_rules(policy)
    return bylaw.load_rules([{"id": "r", **rule} for rule in (rules if isinstance(rules, list) else [rules])])


def judge(rules: Any, folder: Path, *turns: Turn) -> tuple[str, list[int | None]]:
    """The outcome of the only rule, and the turns at which it was broken."""
    report = bylaw.check(write(folder / "trace.agentlog", *turns), load(rules, folder))
    [counts] = report.by_rule.values()
    [outcome] = [one.value for one in bylaw.Outcome if getattr(counts, one.value)]
    broken = [one.verdict for one in report.findings if one.verdict.outcome is bylaw.Outcome.VIOLATED]
    return outcome, [verdict.turn for verdict in broken]
