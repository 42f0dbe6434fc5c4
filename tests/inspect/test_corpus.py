"""Every real file is shown, whole and folded, and nothing of it steers the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from bylaw.inspect.comparison import compare
from bylaw.inspect.model import TurnEntry
from bylaw.inspect.report.json import entry_line
from bylaw.inspect.report.side_by_side import Columns
from bylaw.inspect.timeline import Timeline
from bylaw.report.text import width
from bylaw.traces import load_trace, open_trace
from tests.inspect.support import controls, entries, page

pytestmark = pytest.mark.corpus
SMALL = ("formats/agentlog/*/*.agentlog", "formats/claude-code/*", "formats/inspect/*", "formats/mcp/*")
SMALL += ("formats/openinference/*", "agentdojo-gt/slack/*")


@pytest.mark.parametrize("pattern", SMALL)
def test_every_format(data: Path, pattern: str) -> None:
    names = sorted(data.glob(pattern))
    assert names
    for name in names:
        trace = load_trace(name, skip_bad=True)
        shown = entries(trace)
        assert sum(isinstance(entry, TurnEntry) for entry in shown) == len(trace.turns)
        for full in (False, True):
            text = page(shown, width=90, full=full)
            assert not controls(text), name
            assert max(width(line) for line in text.splitlines()) <= 90, name
        assert all(entry_line(entry).endswith("\n") for entry in shown)


def test_a_conversation_is_shown_once(data: Path) -> None:
    """tau-bench records whole conversations: each message of the user is heard exactly once."""
    trace = load_trace(data / "tau-airline/gpt-4o-airline.json.gz")
    said: dict[str, int] = {}
    heard: dict[str, int] = {}
    for turn in trace.turns:
        messages = turn.request.messages if turn.request is not None else None
        said[turn.session] = sum(message["role"] == "user" for message in messages or ())
    for entry in entries(trace):
        if isinstance(entry, TurnEntry):
            session = entry.origin.session
            heard[session] = heard.get(session, 0) + sum(m.role == "user" for m in entry.input.messages)
    assert heard == said


def test_long_traces_are_streamed(data: Path) -> None:
    timeline = Timeline(open_trace(data / "sopbench/events.jsonl.gz"))
    first = next(iter(timeline))
    assert first is not None
    assert timeline.totals.events < 1_000


def test_trials_of_one_task(data: Path) -> None:
    folder = data / "formats/agentlog/customer-support"
    report = compare(open_trace(folder / "baseline.agentlog"), open_trace(folder / "candidate.agentlog"))
    assert report.first is not None
    assert "".join(Columns(width=120).render(report)).count("first difference") == 2
