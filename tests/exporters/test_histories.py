"""A request repeats its conversation; written, each message stands once, and is read back where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bylaw.model.events import Event, Origin, Request, Response, Trace
from bylaw.traces import load_trace
from bylaw.traces.export import export_trace
from bylaw.traces.formats.bylaw import canonical
from bylaw.traces.formats.bylaw.lines import MOST_FOLLOWED
from tests.importers.support import lines
from tests.importers.test_unread import codes

FORMATS = pytest.mark.parametrize("suffix", ["jsonl", "otlp.jsonl"])
TOOLS = [{"name": "refund", "input_schema": {"type": "object", "title": "x" * 200}}]


def says(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{number}: " + "x" * 500}


def exchange(*numbers: int, session: str = "a", turn: int = 0, tools: Any = TOOLS) -> list[Event]:
    request = Request(origin=Origin(session), turn=turn, held_messages=list(map(says, numbers)), held_tools=tools)
    return [request, Response(origin=Origin(session), turn=turn, request=request, content=[], text="")]


def written(events: list[Event], folder: Path, suffix: str) -> Path:
    path = folder / f"t.{suffix}"
    path.unlink(missing_ok=True)
    export_trace(Trace(name="t", events=tuple(events)), path, to="otlp" if "otlp" in suffix else "bylaw")
    return path


@FORMATS
def test_the_size_is_that_of_the_conversation(suffix: str, tmp_path: Path) -> None:
    events = [event for turn in range(40) for event in exchange(*range(turn + 1), turn=turn)]
    path = written(events, tmp_path, suffix)
    assert path.read_text().count("x" * 500) == 40
    assert load_trace(path).events == tuple(events)


@FORMATS
def test_branches_other_sessions_and_other_tools(suffix: str, tmp_path: Path) -> None:
    asked = [(0,), (0, 1, 2), (0, 1), (0, 1, 3), (4,), (), (0, 1, 3, 5), (0, 1, 3, 5)]
    events: list[Event] = []
    for turn, numbers in enumerate(asked):
        events += exchange(*numbers, turn=2 * turn, tools=TOOLS if turn % 3 else None)
        events += exchange(*numbers, turn=2 * turn + 1, session="b", tools=[*TOOLS, turn])
    trace = load_trace(written(events, tmp_path, suffix))
    assert (trace.events, trace.problems) == (tuple(events), ())
    assert load_trace(written(list(trace.events), tmp_path, suffix)).events == tuple(events)  # and once more
    shown = [event.messages for event in trace.events if isinstance(event, Request)]
    assert shown[::2] == [list(map(says, numbers)) for numbers in asked]


@FORMATS
def test_far_behind_is_written_whole(suffix: str, tmp_path: Path) -> None:
    events = exchange(0, session="far")
    events += [event for turn in range(MOST_FOLLOWED) for event in exchange(1, session=str(turn), turn=turn + 1)]
    events += exchange(0, 2, session="far", turn=MOST_FOLLOWED + 1)
    assert load_trace(written(events, tmp_path, suffix)).events == tuple(events)


def test_references_that_lead_nowhere_or_copy_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    head = {"bylaw": "trace/1", "resolved": True}
    first = {"kind": "request", "session": "a", "messages": [says(0), says(1)]}
    for follows in ([9, 1], [2, 3], [2, -1], [3, 1]):
        trace = load_trace(lines(head, first, {"kind": "request", "session": "a", "follows": follows, "messages": []}))
        assert codes(trace) == ["broken-link"]
        assert trace.events[-1].messages is None  # type: ignore[attr-defined]
    assert codes(load_trace(lines(head, first, {"kind": "request", "tools_of": 7}))) == ["broken-link"]
    monkeypatch.setattr(canonical, "MOST_COPIED", 5)
    again = {"kind": "request", "session": "a", "follows": [2, 1], "messages": [says(3)]}
    assert "broken-link" in codes(load_trace(lines(head, first, *[again] * 9)))


def test_the_lines_of_a_small_conversation(tmp_path: Path) -> None:
    events = [*exchange(0), *exchange(0, 1, turn=1)]
    found = [json.loads(line) for line in written(events, tmp_path, "jsonl").read_text().splitlines()]
    requests = [line for line in found if line.get("kind") == "request"]
    assert [line.get("follows") for line in requests] == [None, [2, 1]]
    assert [len(line["messages"]) for line in requests] == [1, 1]
    assert [line.get("tools_of") for line in requests] == [None, 2]
