"""The page as a terminal shows it: it fits, nothing steers the terminal, and what matters is on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import bylaw
from bylaw.inspect.commands import inspect
from bylaw.inspect.model import SessionEntry
from bylaw.inspect.report.layout import format_tokens
from bylaw.inspect.report.terminal import Page
from bylaw.inspect.timeline import Prescan, Timeline
from bylaw.model.events import Event, Usage
from bylaw.report.text import width
from tests.inspect.support import controls, entries, everything, page
from tests.support.build import trace

HOSTILE = [
    {
        "text": "\x1b[31mred\x07 \u202e" + "漢字" * 300,
        "session": "a\x1b[2J\nb",
        "agent": "\x1bagent",
        "stop": "\x1bstop",
    },
    {
        "calls": [{"name": "rm\x1b[2J\n-rf", "args": {"\x1bkey": "\x1b]52;c;aGk=\x07" * 50}}],
        "results": [{"of": 0, "content": {"\u202ek": "\x9b"}, "error": True}],
        "session": "a\x1b[2J\nb",
        "request": {"messages": [{"role": "\x1brole", "content": [{"type": "\x1btype", "x": "\x1b"}, 3, None]}]},
    },
    {"calls": [{"name": "x" * 5000, "raw": "y" * 5000}], "model": "\x1bmodel" * 50, "text": None},
]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("columns", [40, 61, 100, 200])
@pytest.mark.parametrize("made", [everything(), trace(HOSTILE)], ids=["everything", "hostile"])
def test_every_line_fits_and_steers_nothing(made: object, columns: int, full: bool) -> None:
    shown = page(entries(made), width=columns, full=full)  # type: ignore[arg-type]
    assert not controls(shown)
    assert max(width(line) for line in shown.splitlines()) <= columns


def test_nothing_is_said_by_colour_alone() -> None:
    made = Page(width=100)
    coloured = "".join(made.entry(entry) for entry in entries(everything()))
    assert "\x1b[" in coloured
    assert click.unstyle(coloured) == page(entries(everything()))


def test_an_unknown_figure_is_a_dash() -> None:
    shown = page(entries(trace([{"text": "hi"}])))
    assert "– tok · – s · $ – · stop –" in shown
    shown = page(entries(trace([{"text": "hi", "tokens": [0, 0], "latency": 0.0, "model": "gpt-4o"}])))
    assert "0 → 0 tok · 0 ms · $0 · stop –" in shown


def test_an_unknown_half_of_the_tokens_is_a_dash() -> None:
    assert format_tokens(Usage(7, None)) == "7 → – tok"
    assert format_tokens(Usage(None, 7)) == "– → 7 tok"
    assert format_tokens(Usage(recorded={"total_tokens": 9})) == "9 tok"


def test_a_model_is_named_where_it_changes() -> None:
    shown = page(entries(trace([{"model": "a"}, {"model": "a"}, {"model": "b"}])))
    assert [line.split("─")[0].strip() for line in shown.splitlines() if line.startswith("turn")] == [
        *("turn 0 · a", "turn 1", "turn 2 · b")
    ]


def test_a_long_input_shows_both_ends() -> None:
    messages = [{"role": "user", "content": f"message {i}"} for i in range(20)]
    shown = page(entries(trace([{"request": {"messages": messages}}])))
    assert "message 1\n" in shown and "message 15\n" in shown
    assert "message 7\n" not in shown
    assert "… 13 messages (`--full` shows them)" in shown
    assert "message 7\n" in page(entries(trace([{"request": {"messages": messages}}])), full=True)


def test_in_full_arguments_keep_their_lines() -> None:
    made = trace([{"calls": [{"name": "write", "args": {"path": "a.py", "text": "def f():\n    pass\n\nf()"}}]}])
    shown = page(entries(made), full=True)
    assert 'path: "a.py"' in shown
    assert "text: |\n             def f():\n                 pass\n\n             f()\n" in shown


def test_a_session_shows_what_it_cost_and_how_long_it_lasted() -> None:
    known = Prescan(everything()).totals().by_session
    seven = known["ticket-7"]
    assert (seven.turns, seven.calls, seven.lasted, seven.cost.turns, seven.tokens.total) == (3, 3, 75.0, 1, 862)
    made = Page(width=80)
    headings = [
        made.entry(entry) for entry in Timeline(everything(), by_session=known) if isinstance(entry, SessionEntry)
    ]
    shown = [click.unstyle(heading).splitlines()[1] for heading in headings]
    assert shown[0].endswith("lasted 1m 15s")
    assert "lasted" not in shown[1]
    assert all(width(line) <= 80 for line in shown)


def test_reading_ahead_stops_after_a_while() -> None:
    def slow() -> Iterator[Event]:
        for number, event in enumerate(list(everything()) * 1000):
            if number == 1500:
                time.sleep(0.02)
            assert number < 3000
            yield event

    ahead = Prescan(slow(), seconds=0.01)
    assert not ahead.is_all
    assert Prescan(everything(), seconds=0).is_all


def test_pager_shows_the_page_in_a_pager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[str] = []
    monkeypatch.setattr(click, "echo_via_pager", lambda pieces, color: shown.extend(pieces))
    path = tmp_path / "t.json"
    path.write_text('[{"role": "user", "content": "q"}, {"role": "assistant", "content": "hi"}]')
    found = CliRunner().invoke(inspect, [str(path), "--pager"])
    assert (found.exit_code, found.output) == (0, "")
    assert "hi" in "".join(shown)
    assert "hi" in CliRunner().invoke(inspect, [str(path)]).output


@pytest.mark.parametrize("events", [10_000, 3], ids=["totals first", "totals at the end"])
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ([], None),
        (["--turn", "2"], "1 of 2 sessions · 1 of 4 turns · 1 of 3 calls"),
        (["--tool", "ask*"], "1 of 2 sessions · 1 of 4 turns · 1 of 3 calls"),
        (["--session", "ticket-8"], "1 of 2 sessions · 1 of 4 turns · 0 of 3 calls"),
        (["--session", "nope"], "0 of 2 sessions · 0 of 4 turns · 0 of 3 calls"),
    ],
)
def test_a_selection_is_counted_beside_the_whole_trace(
    asked: list[str], shown: str | None, events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prescan.__init__, "__kwdefaults__", {"events": events, "seconds": 0.3})
    bylaw.convert(everything(), tmp_path / "run.jsonl")
    found = CliRunner().invoke(inspect, [str(tmp_path / "run.jsonl"), *asked], standalone_mode=False).stdout
    assert "    holds  2 sessions · 4 turns · 3 calls · 1 failed" in found
    assert (f"    shown  {shown}\n" in found) if shown else ("    shown  " not in found)
    assert ("the totals follow at the end" in found) == (events == 3)
