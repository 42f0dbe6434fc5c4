"""Real files of each format: what is read from them agrees with counts that were made independently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.events import ToolCall, ToolResult
from bylaw.traces import load_trace
from bylaw.traces.assembly.content import MISSING_CALLS
from bylaw.traces.formats.catalogue import CATALOGUE
from bylaw.traces.formats.claude_code.reader import NO_LINES
from bylaw.traces.records.files import open_path
from bylaw.traces.records.layout import sample, sniff
from tests.conftest import DATA

pytestmark = pytest.mark.corpus
FOLDER = DATA / "formats"
EXPECTED = json.loads((FOLDER / "EXPECTED.json").read_text()) if (FOLDER / "EXPECTED.json").is_file() else []


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: str(expected["path"]))
def test_counts(expected: dict[str, Any]) -> None:
    trace = load_trace(FOLDER / expected["path"])
    kinds = [event.kind for event in trace.events]
    counts = {
        "turns": kinds.count("response"),
        "tool_calls": kinds.count("tool_call"),
        "tool_results": kinds.count("tool_result"),
        "sessions": len(trace.sessions),
    }
    assert {key: count for key, count in counts.items() if expected.get(key) is not None} == {
        key: expected[key] for key in counts if expected.get(key) is not None
    }, trace.format
    results = {id(event.call): event for event in trace.events if isinstance(event, ToolResult)}
    calls = [event for event in trace.events if isinstance(event, ToolCall)]
    for (name, arguments, result), call in zip(expected.get("first_calls") or (), calls, strict=False):
        assert call.name == name
        assert arguments is None or call.arguments == arguments
        if result is not None:
            assert begins(results[id(call)].content, result)


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: str(expected["path"]))
def test_one_format_claims_it_and_nothing_is_unread(expected: dict[str, Any]) -> None:
    source = open_path(str(FOLDER / expected["path"]))
    values = list(sample(source, sniff(source)))
    claimed = [name for name, format in CATALOGUE.items() if format.has_claims and any(map(format.claims, values))]
    trace = load_trace(FOLDER / expected["path"])
    assert claimed in ([], [trace.format])
    doubts = {"unread-content", "guessed-call", "disagreeing-call", "unclear-session"}
    reported = [problem for problem in trace.problems if problem.code in doubts]
    if "tool_calls" not in expected and not any(isinstance(event, ToolCall) for event in trace.events):
        # its recorder left the content of answers out, so calls that they announce are nowhere in the file
        reported = [problem for problem in reported if problem.message != MISSING_CALLS]
    reported = [
        problem for problem in reported if problem.message != NO_LINES
    ]  # the file of a subagent was not collected
    assert not reported


def begins(content: Any, start: str) -> bool:
    """Whether a result begins like this: as text, as JSON, or as the text of its blocks."""
    wanted = "".join(start.split())[:60].removeprefix('{"output":')
    texts = [content, json.dumps(content), json.dumps(content, ensure_ascii=False)]
    if isinstance(content, list):
        texts.append("".join(part.get("text", "") for part in content if isinstance(part, dict)))
    return any("".join(text.split()).startswith(wanted) for text in texts if isinstance(text, str))
