"""The whole page, once each way. `pytest tests/inspect --update-golden` rewrites them; read the diff."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from bylaw.inspect.comparison import compare
from bylaw.inspect.model import SideBySide
from bylaw.inspect.report.json import comparison_lines, end_line, entry_line, trace_line
from bylaw.inspect.report.side_by_side import Columns
from bylaw.inspect.report.terminal import Page
from bylaw.inspect.timeline import Timeline
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Response, ToolResult
from tests.inspect.support import entries, everything, page

HERE = Path(__file__).parent / "golden"


def _terminal(width: int, full: bool) -> str:
    made, trace = Page(width=width, full=full), everything()
    timeline = Timeline(trace)
    shown = [made.entry(entry) for entry in timeline]
    read = replace(trace, skipped=2, problems=(Diagnostic(code="bad-json", message="bad", file="run.jsonl"),))
    top = made.title(trace.name, trace.format) + made.totals(timeline.totals, read)
    return click.unstyle(top + "".join(shown))


def _json() -> str:
    trace = everything()
    timeline = Timeline(trace)
    shown = [entry_line(entry) for entry in timeline]
    return trace_line(trace.name, trace.format) + "".join(shown) + end_line(timeline.totals, trace, exit_code=0)


def _two() -> SideBySide:
    before = everything()
    return compare(before, replace(before, name="candidate.jsonl", events=tuple(map(_changed, before.events))))


def _changed(event: Event) -> Event:
    if isinstance(event, Response) and event.turn == 2:
        return replace(event, text="I cannot refund that.", stop_reason="end_turn")
    return replace(event, content="it is not") if isinstance(event, ToolResult) and event.call_id == "c2" else event


RENDERED = {
    "timeline.txt": lambda: _terminal(100, False),
    "timeline.narrow.txt": lambda: _terminal(56, False),
    "timeline.full.txt": lambda: _terminal(100, True),
    "timeline.jsonl": _json,
    "turn.txt": lambda: page(entries(everything(), turns=[(2, 2)])),
    "tool.txt": lambda: page(entries(everything(), tools=["ask*"])),
    "beside.txt": lambda: click.unstyle("".join(Columns(width=120).render(_two()))),
    "below.txt": lambda: click.unstyle("".join(Columns(width=72).render(_two()))),
    "two.jsonl": lambda: "".join(comparison_lines(_two(), 0)),
}


@pytest.mark.parametrize("name", sorted(RENDERED))
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    rendered = RENDERED[name]()
    path = HERE / name
    if request.config.getoption("--update-golden"):
        path.write_text(rendered, "utf-8")
    assert rendered == path.read_text("utf-8")
