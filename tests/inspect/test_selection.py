"""Parts of a trace, and what is said where they are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bylaw.cli import main
from bylaw.inspect.model import EventEntry, RequestEntry, Selection, TurnEntry
from bylaw.inspect.timeline import Timeline
from bylaw.model.events import ToolResult
from tests.inspect.support import entries, everything, turns


def test_turns_by_number_are_shown_in_full_with_the_whole_request() -> None:
    (turn,) = turns(everything(), turns=[(2, 2)])
    assert turn.whole
    assert [message.role for message in turn.input.messages] == ["system", "user", "assistant", "tool", "tool"]


def test_a_range_of_turns_shows_the_history_once() -> None:
    shown = turns(everything(), turns=[(0, 0), (2, 3)])
    assert [turn.turn for turn in shown] == [0, 2, 3]
    assert len(shown[0].input.messages) == 2


def test_a_tool_shows_only_its_calls_and_results() -> None:
    (turn,) = turns(everything(), tools=["lookup*"])
    assert [called.call.name for called in turn.calls] == ["lookup_order"]
    assert (turn.other_calls, turn.input.messages, turn.thoughts) == (1, (), ())


def test_a_late_result_belongs_to_its_tool() -> None:
    shown = entries(everything(), tools=["ask_researcher"])
    late = [entry.event for entry in shown if isinstance(entry, EventEntry)]
    assert [type(event) for event in late] == [ToolResult]


def test_sessions_and_agents_are_selected_by_globs() -> None:
    assert [turn.turn for turn in turns(everything(), sessions=["ticket-8"])] == [3]
    assert [turn.turn for turn in turns(everything(), sessions=["ticket-?"])] == [0, 1, 2, 3]
    assert [turn.turn for turn in turns(everything(), agents=["research*"])] == [1]
    assert any(isinstance(entry, RequestEntry) for entry in entries(everything(), sessions=["ticket-8"]))


def test_kinds_of_filters_narrow_each_other() -> None:
    assert turns(everything(), agents=["support"], turns=[(1, 1)]) == []
    assert [turn.turn for turn in turns(everything(), agents=["support", "researcher"])] == [0, 1, 2]


@pytest.mark.parametrize(
    ("asked", "what", "there"),
    [
        ({"tools": ["refnd"]}, "tool `refnd`", "did you mean `refund`?"),
        ({"tools": ["zzz*"]}, "tool `zzz*`", "tools: `lookup_order`, `ask_researcher`, `refund`"),
        ({"sessions": ["ticket-9"]}, "session `ticket-9`", "did you mean `ticket-7`?"),
        ({"agents": ["suport"]}, "agent `suport`", "did you mean `support`?"),
        ({"turns": [(9, 9)]}, "turn 9", "turns: 0 to 3"),
        ({"turns": [(9, 12)]}, "turns 9-12", "turns: 0 to 3"),
    ],
)
def test_a_selected_name_that_is_missing_gives_advice(asked: dict[str, list[object]], what: str, there: str) -> None:
    selection = Selection(**asked)  # type: ignore[arg-type]
    timeline = Timeline(everything(), selection)
    assert [entry for entry in timeline if isinstance(entry, TurnEntry)] == []
    assert list(selection.missing(timeline.totals)) == [(what, there)]
    assert timeline.totals.shown == 0


def test_a_selected_name_that_exists_gives_no_advice() -> None:
    selection = Selection(tools=["ref*"], sessions=["ticket-7"], turns=[(0, 99)])
    timeline = Timeline(everything(), selection)
    list(timeline)
    assert list(selection.missing(timeline.totals)) == []


def test_names_from_the_trace_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "\x1b]0;title\x07", "arguments": "{}"}}
    said = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]}
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(said) + "\n")
    with pytest.raises(SystemExit) as done:
        main(["--color", "inspect", str(path), "--tool", "zz\x1b"])
    assert done.value.code == 3
    reported = capsys.readouterr().err
    assert r"no tool `zz\x1b` in the trace" in reported and r"tools: `\x1b]0;title\x07`" in reported
    assert "\x07" not in reported
