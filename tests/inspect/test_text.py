"""Text that is safe, measured and fits: every line of every text, whatever it holds."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.inspect.report.layout import (
    call_preview,
    fit,
    fold,
    format_cost,
    format_duration,
    format_latency,
    format_tokens,
    lay_out,
    middle,
    one_line,
    pretty,
    preview,
    truncate,
)
from bylaw.report.text import width
from tests.inspect.support import controls

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u2066 \r\nnext\tline\u2028 \x9b31m \ud800 \u200b"
texts = st.text(st.characters() | st.sampled_from("\x1b\n\t\r 漢💡\u0301\ufe0f\u202e\u200b\ud83d"), max_size=300)


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("💡", 2), ("❤\ufe0f", 2), ("🇫🇷", 2), ("…", 1), ("각", 2), ("", 0)],
)
def test_width_counts_terminal_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@given(texts, st.integers(10, 60), st.integers(1, 4))
def test_shortened_text_fits_and_steers_nothing(text: str, columns: int, lines: int) -> None:
    folded = fold(text, columns, lines)
    assert len(folded) <= lines
    assert all(width(line) <= columns and not controls(line) and "\n" not in line for line in folded)


@given(texts, st.integers(10, 60))
def test_text_laid_out_fits_and_loses_no_character(text: str, columns: int) -> None:
    lines = list(lay_out(text, columns))
    assert all(width(line) <= columns and not controls(line) for line in lines)
    letters = "".join(c for c in text if c.isalpha() and c.isascii())
    shown = "".join(c for line in lines for c in line if c.isalpha() and c.isascii())
    assert all(shown.count(c) >= letters.count(c) for c in set(letters))


@given(texts, st.integers(4, 60))
def test_one_line_fits(text: str, columns: int) -> None:
    for line in (fit(text, columns), one_line(text, columns), middle(text, columns), truncate(fit(text, 999), columns)):
        assert width(line) <= columns
        assert not controls(line)
        assert "\n" not in line


def test_shortened_text_ends_with_its_length() -> None:
    assert fold("a b\n\n c", 40, 1) == ["a b ⏎ c"]
    assert fold("word " * 100, 60, 2)[-1].endswith("… (500 characters)")
    assert len(fold("word " * 100, 60, 2)) == 2


def test_indentation_survives_in_full_text() -> None:
    assert list(lay_out("def f():\n    return 1\n\n\tx", 40)) == ["def f():", "    return 1", "", "    x"]


def test_hostile_text_is_shown_escaped() -> None:
    (line,) = fold(HOSTILE, 200, 1)
    assert "\\x1b[2J" in line
    assert "\\u202e" in line
    assert "\\ud800" in line


# -- values ------------------------------------------------------------------------------------------------------------


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_preview_is_json_and_ends_in_time() -> None:
    assert preview({"a": [1, "x\n", None, True]}, 100) == '{"a": [1, "x\\n", null, true]}'
    assert len(preview(["x" * 10**6] * 1000, 80)) < 200
    assert len(preview(dict.fromkeys(range(10**5)), 80)) < 200
    assert preview(_nested(2000), 10_000).startswith("[[[[")
    assert "…" in preview(_nested(2000), 10_000)


def test_arguments_are_previewed_as_a_call() -> None:
    assert call_preview({"id": "A-1", "amount": 20}, None, 100) == 'id="A-1", amount=20'
    assert call_preview(None, None, 100) == "–"
    assert call_preview(None, "{broken", 100) == "{broken"
    assert call_preview({}, None, 100) == ""
    assert call_preview([1, 2], None, 100) == "[1, 2]"


def test_pretty_json_keeps_what_was_recorded() -> None:
    assert pretty('{"a": 1.10, "a": 2}') == '{\n  "a": 1.10,\n  "a": 2\n}'
    assert pretty("{not json") == "{not json"
    assert pretty([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]) == "one\ntwo"
    assert pretty("\ud800") == "\ud800"
    assert pretty(_nested(100_000)[:1]) != ""


def test_a_huge_text_costs_as_little_as_a_small_one() -> None:
    small, huge = "word " * 1_000, "word " * 10_000_000

    def spent(text: str) -> float:
        start = time.process_time()
        for _ in range(200):
            fold(text, 80, 4)
        return time.process_time() - start

    spent(small)
    assert spent(huge) < 20 * spent(small) + 0.5


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (format_latency(None), "– s"),
        (format_latency(0.2), "<1 ms"),
        (format_latency(820), "820 ms"),
        (format_latency(1234), "1.2 s"),
        (format_latency(133_000), "2m 13s"),
        (format_duration(90_000), "1d 01h"),
        (format_duration(11_100), "3h 05m"),
        (format_cost(None), "$ –"),
        (format_cost(0), "$0"),
        (format_cost(0.00001), "<$0.0001"),
        (format_cost(0.0123), "$0.0123"),
        (format_cost(1234.5), "$1,234.50"),
        (format_tokens(None), "– tok"),
    ],
)
def test_figures_are_shown_in_their_units(shown: str, wanted: str) -> None:
    assert shown == wanted
