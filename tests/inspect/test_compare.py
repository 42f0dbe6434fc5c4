"""Two traces: what differs, what comes first, and what is no difference."""

from __future__ import annotations

from typing import Any

import click
import pytest

from bylaw.inspect.comparison import compare
from bylaw.inspect.model import Selection, SideBySide
from bylaw.inspect.report import side_by_side as wording
from bylaw.inspect.report.side_by_side import Columns
from bylaw.report.text import width
from tests.inspect.support import controls, everything
from tests.support.build import trace

TURNS = [
    {"calls": [{"name": "lookup", "args": {"id": 1}}], "results": [{"of": 0, "content": {"amount": 20}}]},
    {"text": "Shall I refund 20?", "stop": "end_turn"},
    {"calls": [{"name": "refund", "args": {"id": 1, "amount": 20}}], "results": [{"of": 0, "content": "ok"}]},
    {"text": "Done.", "stop": "end_turn"},
]


def _both(after: list[Any], before: list[Any] = TURNS, **asked: Any) -> SideBySide:
    return compare(trace(before, name="a.jsonl"), trace(after, name="b.jsonl"), Selection(**asked))


def _with(place: int, **changed: Any) -> list[Any]:
    return [{**turn, **changed} if i == place else turn for i, turn in enumerate(TURNS)]


def _shown(report: SideBySide, columns: int = 120, full: bool = False) -> str:
    return click.unstyle("".join(Columns(width=columns, full=full).render(report)))


@pytest.mark.parametrize(
    ("after", "reported"),
    [
        (_with(2, calls=[{"name": "refund", "args": {"id": 1, "amount": 200}}]), "tool call refund amount 20 → 200"),
        (_with(2, calls=[{"name": "refund", "args": {"id": 1}}]), "tool call refund amount is missing: 20"),
        (
            _with(2, calls=[{"name": "refund", "args": {"id": 1, "amount": 20, "why": "x"}}]),
            "tool call refund why is new: x",
        ),
        (_with(2, calls=["confirm", {"name": "refund", "args": TURNS[2]["calls"][0]["args"]}], results=[]),  # type: ignore[index]
         "tool call confirm is new"),
        (_with(2, calls=[], results=[], text="no"), "tool call refund is no longer made"),
        (_with(2, calls=["deny"], results=[]), 'tool call "refund" → "deny"'),
        (_with(2, results=[{"of": 0, "content": "late"}]), 'result of refund "ok" → "late"'),
        (_with(3, text="Sorry."), 'text "Done." → "Sorry."'),
        (_with(3, stop="length"), 'stop reason "end_turn" → "length"'),
        (TURNS[:3], "a turn is missing"),
    ],
)  # fmt: skip
def test_a_difference_is_described(after: list[Any], reported: str) -> None:
    report = _both(after)
    assert report.first is not None
    assert wording.difference_line(report.first.differences[0]) == reported
    assert f"≠ first difference at turn {report.first.turn}: {reported}\n" in _shown(report)


def test_equal_traces_show_no_difference() -> None:
    report = _both(TURNS)
    assert (report.first, report.differing, report.pairs) == (None, 0, 4)
    assert _shown(report).startswith("= no difference\n")
    assert "≠" not in _shown(report)


def test_the_first_difference_is_marked_and_later_ones_too() -> None:
    after = _with(1, text="Shall I refund 200?")
    after[3] = {**after[3], "text": "Bye."}
    shown = _shown(_both(after))
    assert shown.index("= turn 0") < shown.index("≠≠ first difference: turn 1") < shown.index("≠ turn 3:")
    assert shown.count("≠≠") == 1
    assert "2 of 4 pairs of turns differ" in shown


def test_a_value_that_only_one_side_recorded_is_no_difference() -> None:
    bare = [{key: value for key, value in turn.items() if key not in ("stop", "results")} for turn in TURNS]
    assert _both(bare).first is None
    untold = [{**turn, "text": None} if "text" in turn else turn for turn in TURNS]
    assert _both(untold).first is None


def test_ids_of_calls_and_figures_are_not_compared() -> None:
    other = _with(2, calls=[{"name": "refund", "args": {"amount": 20, "id": 1}, "id": "other"}], tokens=[1, 2])
    assert _both(other).first is None


def test_a_turn_that_moved_is_still_paired() -> None:
    report = _both([TURNS[0], *TURNS[2:]])
    (session,) = report.sessions
    sides = [(p.baseline and p.baseline.turn, p.candidate and p.candidate.turn) for p in session.pairs]
    assert sides == [(0, 0), (1, None), (2, 1), (3, 2)]
    assert "= turn 2 ↔ 1" in _shown(report)


def test_sessions_are_paired_by_id_and_the_rest_in_order() -> None:
    before = [{"session": "x", "text": "1"}, {"session": "y", "text": "2"}]
    after = [{"session": "y", "text": "2"}, {"session": "z", "text": "9"}]
    report = _both(after, before)
    assert [(s.baseline, s.candidate) for s in report.sessions] == [("x", "z"), ("y", "y")]
    report = _both(after[:1], before)
    assert [(s.baseline, s.candidate) for s in report.sessions] == [("x", None), ("y", "y")]


def test_other_input_is_a_note_and_no_difference() -> None:
    asked = [{"request": {"messages": [{"role": "user", "content": text}]}, "text": "ok"} for text in ("hi", "ho")]
    report = compare(trace(asked[:1]), trace(asked[1:]))
    assert (report.first, report.input_differs_at) == (None, 0)
    assert "the requests hold different messages, first at turn 0" in _shown(report)


def test_a_selection_narrows_the_pairs_but_not_the_totals() -> None:
    after = _with(0, calls=[{"name": "lookup", "args": {"id": 2}}])
    report = _both(after, tools=["refund"])
    assert report.shown == 1
    assert report.first is not None and report.first.turn == 0
    assert _both(after, turns=[(9, 9)]).shown == 0


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("columns", [40, 99, 100, 170])
def test_every_line_fits(columns: int, full: bool) -> None:
    other = trace([{"text": "\x1b[2J漢字 " * 90, "session": "ticket-7"}, {"session": "\x1b"}], name="漢" * 200)
    shown = _shown(compare(everything(), other), columns, full)
    assert not controls(shown)
    assert max(width(line) for line in shown.splitlines()) <= columns


def test_columns_are_aligned() -> None:
    after = _with(1, text="漢字 💡 " * 20)
    lines = _shown(_both(after), 121).splitlines()
    rows = [line for line in lines if " ≠ " in line or " │ " in line]
    assert len(rows) > 3
    assert {width(line[: max(line.rfind(" ≠"), line.rfind(" │"))]) for line in rows} == {59}


def test_narrow_output_stacks_the_two_traces() -> None:
    shown = _shown(_both(_with(3, text="Sorry.")), 60)
    assert "- assistant  Done.\n+ assistant  Sorry.\n" in shown


def test_a_result_that_came_late_is_compared_too() -> None:
    early = [{"calls": [{"name": "ask", "id": "c"}], "results": [{"of": 0, "content": "yes"}]}, {"text": "ok"}]
    late = [{"calls": [{"name": "ask", "id": "c"}]}, {"text": "ok"}, {"result": {"of": "c", "content": "yes"}}]
    other = [*late[:2], {"result": {"of": "c", "content": "no"}}]
    assert _both(late, early).first is None
    report = _both(other, early)
    assert report.first is not None
    assert wording.difference_line(report.first.differences[0]) == 'result of ask "yes" → "no"'


def test_a_turn_is_the_baselines_or_that_of_an_insertion() -> None:
    report = _both([TURNS[0], {"text": "wait"}, *TURNS[1:]], turns=[(1, 1)])
    sides = [(p.baseline and p.baseline.turn, p.candidate and p.candidate.turn) for p in report.sessions[0].pairs]
    assert sides == [(None, 1), (1, 2)]


def test_a_turn_that_only_one_side_has_is_marked_throughout() -> None:
    shown = _shown(_both(TURNS[:3]), 60)
    assert "- turn 3 ─" in shown
    assert "- assistant  Done.\n" in shown


def test_a_value_that_only_one_side_recorded_is_still_shown() -> None:
    bare = [{key: value for key, value in turn.items() if key != "results"} for turn in _with(2, stop="length")]
    shown = _shown(_both(_with(2, stop="end_turn"), bare), 60)
    assert "          ←  ok\n" in shown


def test_nothing_compared_is_not_no_difference() -> None:
    assert _shown(_both([], [])).startswith("∅ nothing to compare\n")


SESSIONS: list[Any] = [{**turn, "session": name} for name in ("x", "y") for turn in TURNS]  # type: ignore[dict-item]
CHANGED = [*SESSIONS[:5], {**SESSIONS[5], "text": "Shall I refund 200?"}, SESSIONS[6], {**SESSIONS[7], "text": "Bye."}]


@pytest.mark.parametrize(
    ("asked", "top"),
    [
        (
            {"sessions": ["x"]},
            "= no difference in what is shown; 2 of 8 pairs of turns differ in the whole traces\n"
            "a.jsonl: 4 of 8 turns shown · b.jsonl: 4 of 8 turns shown\n",
        ),
        (
            {"sessions": ["y"]},
            '≠ first difference at turn 5 of session y: text "Shall I refund 20?" → "Shall I refund 200?"\n'
            "2 of 4 shown pairs of turns differ, 2 of 8 in the whole traces · "
            "a.jsonl: 4 of 8 turns shown · b.jsonl: 4 of 8 turns shown\n",
        ),
        (
            {"turns": [(7, 7)]},
            '≠ first shown difference at turn 7 of session y: text "Done." → "Bye."\n'
            "1 of 1 shown pair of turns differs, 2 of 8 in the whole traces · "
            "a.jsonl: 1 of 8 turns shown · b.jsonl: 1 of 8 turns shown\n",
        ),
        (
            {"sessions": ["z"]},
            "∅ nothing to show; 2 of 8 pairs of turns differ in the whole traces\n"
            "a.jsonl: 0 of 8 turns shown · b.jsonl: 0 of 8 turns shown\n",
        ),
        (
            {},
            '≠ first difference at turn 5 of session y: text "Shall I refund 20?" → "Shall I refund 200?"\n'
            "2 of 8 pairs of turns differ · a.jsonl: 8 turns · b.jsonl: 8 turns\n",
        ),
    ],
)
def test_the_headline_is_about_what_is_shown_and_counts_other_differences(asked: dict[str, Any], top: str) -> None:
    report = _both(CHANGED, SESSIONS, **asked)
    assert _shown(report, 200).startswith(top)
    assert (report.pairs, report.differing) == (8, 2), "of the whole traces, as in JSON"


def test_a_selection_of_equal_traces_shows_no_difference() -> None:
    assert _shown(_both(SESSIONS, SESSIONS, sessions=["x"]), 200).startswith("= no difference\na.jsonl: 4 of 8 turns")


def test_the_note_on_other_input_says_whether_it_is_about_what_is_shown() -> None:
    def side(last: str) -> list[Any]:
        said = (("x", "hi"), ("y", last))
        messages = [(name, [{"role": "user", "content": text}]) for name, text in said]
        return [{"session": name, "request": {"messages": held}, "text": "ok"} for name, held in messages]

    note = "hold different messages, first at turn 1"
    assert f"the requests {note}" in _shown(_both(side("b"), side("a"), sessions=["y"]))
    assert f"requests that are not shown {note}" in _shown(_both(side("b"), side("a"), sessions=["x"]))
