"""The trajectories that are written: valid by ATIF's own models, and readable without anything of Bylaw's own."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given

from bylaw.errors import InputError
from bylaw.model.events import Origin, Response, Trace
from bylaw.traces import load_trace
from bylaw.traces.export import export_trace
from tests import strategies
from tests.exporters.support import refunds
from tests.importers.support import calls, lines, responses, results


def exported(trace: Trace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.atif.json")
        export_trace(trace, path)
        return [json.loads(line) for line in path.read_bytes().splitlines()]


def bare(value: Any) -> Any:
    """Without what is Bylaw's own."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: bare(one) for key, one in value.items() if not (key == "extra" and "bylaw" in one)}


def test_a_session_is_a_trajectory() -> None:
    (document,) = bare(exported(refunds()))
    below = document.pop("subagent_trajectories")
    tool = {
        "type": "function",
        "function": {"name": "refund", "parameters": {"type": "object"}},
        "bylaw.shape": "anthropic",
    }
    assert document.pop("agent") == {
        "name": "support",
        "version": "unknown",
        "model_name": "m",
        "tool_definitions": [tool],
    }
    steps = document.pop("steps")
    assert document == {"schema_version": "ATIF-v1.8", "session_id": "s1", "trajectory_id": "r1"}
    assert [(step["step_id"], step["source"], step["message"]) for step in steps] == [
        (1, "system", "Be kind."),
        (2, "user", "Refund orders 7 and 8."),
        (3, "agent", "At once."),
        (4, "user", "And?"),
        (5, "agent", "Order 7 is refunded."),
    ]
    assert steps[2] == {
        "step_id": 3,
        "timestamp": "2026-01-01T00:00:03Z",
        "source": "agent",
        "model_name": "m-2",
        "message": "At once.",
        "reasoning_content": "two",
        "tool_calls": [
            {"tool_call_id": f"c{n}", "function_name": "refund", "arguments": {"order": n + 6}} for n in (1, 2)
        ],
        "observation": {
            "results": [
                {"source_call_id": "c1", "content": "done"},
                {"source_call_id": "c2", "content": '{"reason":"no such order"}'},
            ]
        },
        "metrics": {
            "prompt_tokens": 40,
            "completion_tokens": 9,
            "cached_tokens": 30,
            "extra": {"reasoning_tokens": 4},
        },
        "llm_call_count": 1,
    }
    assert [(one["trajectory_id"], one["agent"]["name"], len(one["steps"])) for one in below] == [("r2", "mailer", 2)]


def test_an_export_without_slots_reads_as_the_same_story() -> None:
    trace = refunds()
    found = load_trace(lines(*bare(exported(trace))))
    assert [(call.name, call.call_id, call.arguments) for call in calls(found)] == [
        (call.name, call.call_id, call.arguments) for call in calls(trace)
    ]
    assert sorted((one.text or "", one.origin.agent or "") for one in responses(found)) == sorted(
        (one.text or "", one.origin.agent or "") for one in responses(trace)
    )
    assert [one.call_id for one in results(found)] == ["c1", "c2"]


def test_a_conversation_that_is_begun_already_is_copied_context() -> None:
    asks = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "function": {"name": "t", "arguments": "{}"}}],
    }
    history = [{"role": "user", "content": "a"}, asks, {"role": "tool", "tool_call_id": "x", "content": "b"}]
    data = lines({"kind": "request", "messages": history}, {"kind": "response", "content": "c"})
    (document,) = bare(exported(load_trace(data)))
    copied = document["steps"][1]
    assert (copied["is_copied_context"], copied["tool_calls"][0]["function_name"]) == (True, "t")
    assert copied["observation"]["results"] == [{"source_call_id": "x", "content": "b"}]
    assert "is_copied_context" not in document["steps"][2]


def test_sessions_have_a_line_each_and_wait_for_no_other() -> None:
    said = [
        {"kind": kind, "session": session, **({"content": "a"} if kind == "response" else {})}
        for session in ("1", "2")
        for kind in ("response", "session_end")
    ]
    documents = exported(load_trace(lines(*said)))
    assert [document["session_id"] for document in documents] == ["1", "2"]


def test_agents_inside_of_each_other_have_an_end() -> None:
    origins = [Origin("1", run=str(n), parent_run=str(n - 1)) for n in range(500)]
    events = tuple(Response(origin=origin, text=str(n), content=[]) for n, origin in enumerate(origins))
    assert load_trace(lines(*exported(Trace(name="t", events=events)))).events == events


@given(trace=strategies.traces)
def test_it_is_valid_by_the_models_of_the_format(trace: Trace) -> None:
    atif = pytest.importorskip("atif", reason="atif, the models of the format, is not installed")
    assume(trace.events)
    for document in exported(trace):
        atif.Trajectory.model_validate(document)


# Files that were changed


def problems(*documents: dict[str, Any]) -> list[tuple[str, int | None]]:
    with pytest.raises(InputError) as error:
        load_trace(lines(*documents))
    return [(one.code, one.span and one.span.line) for one in error.value.diagnostics]


def test_trajectories_of_others_in_the_file_are_refused_and_not_passed_over() -> None:
    (document,) = exported(refunds())
    assert problems(document, bare(document)) == [("unknown-kind", 2)]
    old = {**document, "extra": {"bylaw": {"trace": "trace/9"}}}
    assert problems(document, old) == [("unsupported-version", 2)]


def test_requests_that_take_over_too_much_are_refused() -> None:
    """A small file could ask for terabytes."""
    (document,) = exported(refunds())
    many = [{"n": 2, "line": {"kind": "request", "messages": [0] * 30_000}, "held": {"messages": 0}}]
    many += [
        {"n": 3 + n, "line": {"kind": "request", "messages": [0]}, "held": {"messages": 29_999 - n % 2}}
        for n in range(2_000)
    ]
    document["extra"]["bylaw"]["events"] = many
    document["steps"], document["subagent_trajectories"] = [], []
    assert problems(document) == [("wrong-type", 1)]


def test_slots_that_were_changed_are_reported() -> None:
    (document,) = exported(refunds())
    document["steps"][2]["extra"]["bylaw"][1]["line"]["turn"] = "one"
    assert problems(document) == [("wrong-type", 1)]
