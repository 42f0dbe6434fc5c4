"""Real files of each format: what is read from them agrees with counts that were made independently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.events import ToolCall, ToolResult
from bylaw.traces import load_trace
from tests.conftest import DATA

pytestmark = pytest.mark.corpus
FOLDER = DATA / "formats"
EXPECTED = json.loads((FOLDER / "EXPECTED.json").read_text()) if (FOLDER / "EXPECTED.json").is_file() else []


OPEN: frozenset[str] = frozenset(
    ()
)
"""folders of formats that have no reader yet"""


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: str(expected["path"]))
def test_counts(expected: dict[str, Any], request: pytest.FixtureRequest) -> None:
    if expected["path"].partition("/")[0] in OPEN:
        request.applymarker(pytest.mark.xfail(strict=False))
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


def begins(content: Any, start: str) -> bool:
    """Whether a result begins like this: as text, as JSON, or as the text of its blocks."""
    wanted = "".join(start.split())[:60].removeprefix('{"output":')
    texts = [content, json.dumps(content), json.dumps(content, ensure_ascii=False)]
    if isinstance(content, list):
        texts.append("".join(part.get("text", "") for part in content if isinstance(part, dict)))
    return any("".join(text.split()).startswith(wanted) for text in texts if isinstance(text, str))
