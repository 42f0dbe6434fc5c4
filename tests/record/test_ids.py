"""Ids of calls that contain a secret are replaced; calls stay distinct, and results still refer to their calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.record.recording import Recording
from bylaw.text.redaction.redactor import recording_redactor
from bylaw.wire.exchange import Exchange, Outgoing
from tests.record.model_clients import read, responses, results

CARDS = ("4111111111111111", "5555555555554444")
IDS = tuple(f"call_{card}" for card in CARDS)
DATA = json.dumps({"id": CARDS[0]})


def _chat() -> tuple[str, Any, Any, Any]:
    calls = [
        {"id": one, "type": "function", "function": {"name": f"f{n}", "arguments": DATA}} for n, one in enumerate(IDS)
    ]
    answer = {"choices": [{"message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}]}
    reported = [{"role": "tool", "tool_call_id": one, "content": f"of f{n}"} for n, one in enumerate(IDS)]
    ask = [{"role": "user", "content": "x"}]
    follow_up = [*ask, {"role": "assistant", "tool_calls": calls}, *reported]
    return "/v1/chat/completions", {"messages": ask}, answer, {"messages": follow_up}


def _messages() -> tuple[str, Any, Any, Any]:
    uses = [{"type": "tool_use", "id": one, "name": f"f{n}", "input": {"id": CARDS[0]}} for n, one in enumerate(IDS)]
    reported = [{"type": "tool_result", "tool_use_id": one, "content": f"of f{n}"} for n, one in enumerate(IDS)]
    ask = [{"role": "user", "content": "x"}]
    follow_up = [*ask, {"role": "assistant", "content": uses}, {"role": "user", "content": reported}]
    answer = {"type": "message", "role": "assistant", "content": uses, "stop_reason": "tool_use"}
    return "/v1/messages", {"messages": ask, "max_tokens": 9}, answer, {"messages": follow_up, "max_tokens": 9}


def _responses() -> tuple[str, Any, Any, Any]:
    items = [
        {"type": "function_call", "id": f"fc_{n}", "call_id": one, "name": f"f{n}", "arguments": DATA}
        for n, one in enumerate(IDS)
    ]
    reported = [{"type": "function_call_output", "call_id": one, "output": f"of f{n}"} for n, one in enumerate(IDS)]
    ask = [{"role": "user", "content": "x"}]
    return (
        "/v1/responses",
        {"input": ask},
        {"status": "completed", "output": items},
        {"input": [*ask, *items, *reported]},
    )


def _pass(recording: Recording, path: str, asked: Any, answer: Any) -> None:
    body = json.dumps({"model": "m", **asked}).encode()
    passing = recording.listen(Exchange(Outgoing("POST", f"http://127.0.0.1{path}", {}, body)))
    passing.head(200, {})
    passing.chunk(json.dumps(answer).encode())
    passing.end()


@pytest.mark.parametrize("said", [_chat, _messages, _responses])
def test_two_calls_stay_two(tmp_path: Path, said: Any) -> None:
    path, asked, answer, follow_up = said()
    file = tmp_path / "run.jsonl"
    recording = Recording(str(file), redact=recording_redactor())
    _pass(recording, path, asked, answer)
    _pass(recording, path, follow_up, answer)
    recording.close()
    trace = read(file)
    assert not any(card in file.read_text() for card in CARDS)
    assert "[redacted: card]" in file.read_text()  # what the tool was asked: its own `id` is no call's
    calls = {call.call_id: call.name for call in responses(trace)[0].tool_calls}
    assert len(calls) == 2
    found = {calls[result.call_id]: str(result.content) for result in results(trace) if result.call_id}
    assert {name: f"of {name}" in content for name, content in found.items()} == {"f0": True, "f1": True}
    history = json.dumps([json.loads(line).get("messages") for line in file.read_text().splitlines()])
    assert all(one in history for one in calls if one)


def test_an_id_without_anything_to_redact_is_not_changed(tmp_path: Path) -> None:
    path, asked, answer, _ = _chat()
    plain = json.loads(json.dumps(answer).replace(IDS[0], "call_abc"))
    recording = Recording(str(tmp_path / "run.jsonl"), redact=recording_redactor())
    _pass(recording, path, asked, plain)
    recording.close()
    ids = [call.call_id for call in responses(bylaw.load_trace(tmp_path / "run.jsonl"))[0].tool_calls]
    assert ids[0] == "call_abc" and str(ids[1]).startswith("redacted_")
