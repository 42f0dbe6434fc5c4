"""Plots and differences: pure functions from values to markup or rows."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

import pytest

from bylaw.guard.service.console.plots import Bucket, Lane, Mark, activity_plot, small_plot, timeline_plot
from bylaw.guard.service.console.render import (
    argument_rows,
    call_text,
    diff_lines,
    environment,
    path_part,
    rule_lines,
    show_place,
    zone_name,
    zone_of,
)

EVIL = '"><script>alert(1)</script>'


def test_a_plot_is_well_formed_and_names_its_numbers() -> None:
    plot = activity_plot(
        [Bucket(0.0, {"allow": 3}), Bucket(60.0, {"block": 1, "pause": 2}), Bucket(120.0, {})], label="Decisions"
    )
    tree = ElementTree.fromstring(str(plot))
    assert tree.attrib["aria-label"] == "Decisions: 3 allow, 2 pause, 1 block"
    assert [title.text for title in tree.iter("title")] == [
        "00:00 3 allow",
        "00:01 2 pause, 1 block",
        "00:02 no decisions",
    ]
    assert len([bar for bar in tree.iter("rect") if "bar" in bar.attrib["class"].split()]) == 3


def test_a_plot_fits_any_width() -> None:
    """Percentages along the axis, pixels across: no text is stretched or shrunk on a phone."""
    plot = str(activity_plot([Bucket(60.0 * n, {"allow": n}) for n in range(60)], label="x"))
    assert "viewBox" not in plot and "style=" not in plot
    for bar in ElementTree.fromstring(plot).iter("rect"):
        assert bar.attrib["x"].endswith("%") and 0 <= float(bar.attrib["x"][:-1]) <= 100
        assert 0 <= float(bar.attrib["y"]) <= 132


def test_times_of_a_plot_are_those_of_the_reader() -> None:
    plot = activity_plot([Bucket(0.0, {"allow": 1})], label="x", zone=timezone(timedelta(hours=2)))
    assert "02:00" in plot and "00:00" not in plot


def test_calls_at_one_moment_share_a_mark_with_the_strictest_action() -> None:
    lanes = [Lane("support", 0.0, 100.0), Lane("refunds", 10.0, 90.0, parent=0)]
    marks = [Mark(1, 50.0, "allow", "a"), Mark(1, 50.1, "block", "b", "#call-2"), Mark(0, 50.0, "pause", "c")]
    tree = ElementTree.fromstring(str(timeline_plot(lanes, marks, label="Calls")))
    links = [one.attrib["aria-label"] for one in tree.iter("a")]
    assert links == ["b and 1 more"]
    assert {one.attrib["class"] for one in tree.iter() if one.attrib.get("class", "").startswith("mark")} == {
        "mark block",
        "mark pause",
    }


def test_a_plot_of_many_calls_stays_small() -> None:
    lanes = [Lane("a", 0.0, 1000.0)]
    marks = [Mark(0, n / 10, "allow", f"call {n}", f"#call-{n}") for n in range(10_000)]
    assert len(timeline_plot(lanes, marks, label="x")) < 80_000


@pytest.mark.parametrize("plot", [activity_plot([], label="x"), timeline_plot([], [], label="x")])
def test_nothing_is_an_empty_plot(plot: str) -> None:
    assert plot == ""


def test_text_of_users_is_text_in_a_plot() -> None:
    lanes = [Lane(EVIL, 0.0, 1.0)]
    marks = [Mark(0, 0.5, "block", EVIL, f"#{EVIL}"), Mark(0, 0.9, EVIL, EVIL)]
    for plot in (timeline_plot(lanes, marks, label=EVIL), small_plot([1], label=EVIL, action=EVIL)):
        assert "<script" not in plot
        assert all(one.tag != "script" for one in ElementTree.fromstring(str(plot)).iter())


# -- differences ------------------------------------------------------------------------------------------------------


def test_changed_arguments_come_first() -> None:
    now = {"order": "A-1", "amount": 2480, "account": {"country": "LT"}}
    before = {"order": "A-1", "amount": 248, "reason": "broken"}
    rows = [(row.path, row.kind, row.now, row.before) for row in argument_rows(now, before, compare=True)]
    assert rows == [
        ("amount", "changed", "2480", "248"),
        ("account.country", "added", '"LT"', None),
        ("reason", "removed", None, '"broken"'),
        ("order", "same", '"A-1"', '"A-1"'),
    ]
    assert [row.kind for row in argument_rows(now)] == ["only", "only", "only"]


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        (None, []),
        ({}, []),
        ("text", ["(all)"]),
        ({"to": ["a", "b"]}, ["to"]),
        ({"to": [{"name": "a"}, {"name": "b"}]}, ["to.0.name", "to.1.name"]),
        ({"a": {}}, ["a"]),
    ],
)
def test_arguments_of_any_shape(value: object, paths: list[str]) -> None:
    assert [row.path for row in argument_rows(value)] == paths


def test_arguments_are_bounded() -> None:
    deep: object = 1
    for _ in range(500):
        deep = {"a": deep}
    rows = argument_rows({"deep": deep, "long": "x" * 10_000, **{str(n): n for n in range(1000)}})
    assert len(rows) == 200
    assert all(len(row.now or "") < 2_100 for row in rows)


def test_a_diff_shows_the_lines_that_differ() -> None:
    before = "\n".join(f"line {n}" for n in range(20))
    lines = diff_lines(before, before.replace("line 10", "line ten"), context=1)
    assert [(one.kind, one.text, one.old, one.new) for one in lines] == [
        ("gap", "…", None, None),
        ("same", "line 9", 10, 10),
        ("removed", "line 10", 11, None),
        ("added", "line ten", None, 11),
        ("same", "line 11", 12, 12),
    ]
    assert diff_lines(before, before) == []
    assert diff_lines("a\n" * 3_000, "b")[0].kind == "gap"


def test_the_lines_of_a_rule_end_with_its_indentation() -> None:
    rules = [
        "    - id: a",
        "      when:",
        "",
        "        x: 1",
        "      then: block",
        "",
        "    - id: b",
        "      then: pause",
    ]
    text = "\n".join(["guard:", "  rules:", *rules])
    assert [number for number, _ in rule_lines(text, 3)] == [3, 4, 5, 6, 7]
    assert rule_lines(text, 9) == [(9, "- id: b"), (10, "  then: pause")]
    assert [number for number, _ in rule_lines(text, 3, 4)] == [3, 4]
    assert rule_lines(text, 99) == []


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ticket-1", "..", "a/b", "a?b#c&d=e", "%2F", "ü", EVIL, "a\\b", " "])
def test_any_name_is_one_value_of_an_address(name: str) -> None:
    part = path_part(name)
    assert part.isascii() and not {"/", "?", "#", "&", "\\", '"', "<", " "} & set(part)
    assert parse_qs(f"name={part}", keep_blank_values=True) == {"name": [name]}


def test_the_zone_of_a_browser_is_bounded() -> None:
    assert zone_name(zone_of("120")) == "UTC+02:00"
    for value in (None, "", "x", "99999999999999999999", "-100000", "1e3"):
        assert zone_of(value) is UTC


@pytest.mark.parametrize("at", [1e308, -1e308, 1e12, 1e18, -1e11, 0, 10**400, float("nan"), float("inf"), "soon"])
def test_any_number_is_shown_as_a_time(at: Any) -> None:
    """What is stored as a time may come from anybody."""
    for name in ("clock", "time", "ago", "until"):
        shown = environment().from_string("{{ at | " + name + " }}").render(at=at, zone=zone_of("-840"))
        assert shown and len(shown) < 30, name
    if isinstance(at, float):
        for lanes in ([Lane("a", at, at)], [Lane("a", at, 5.0), Lane("b", -at, 5.0)]):
            plot = timeline_plot(lanes, [Mark(0, at, "allow", "x"), Mark(0, -at, "allow", "y")], label="l")
            assert "nan" not in plot and "inf" not in plot and len(plot) < 5_000
        assert activity_plot([Bucket(at, {})], label="l")


def test_a_time_that_is_text_is_read() -> None:
    for at in ("2026-11-16T03:00:00Z", "2026-11-16T03:00:00", "2026-11-16T05:00:00+02:00"):
        assert environment().from_string("{{ at | time }}").render(at=at, zone=zone_of("60")) == "04:00:00"


def test_calls_and_places_in_words() -> None:
    assert call_text("refund", {"amount": 9, "to": "ä"}) == 'refund(amount=9, to="ä")'
    assert call_text("", None) == ""
    assert len(call_text("t", {"a": "x" * 10_000})) < 500
    assert show_place("/tmp/x/support.yaml:12:3") == "support.yaml:12"
