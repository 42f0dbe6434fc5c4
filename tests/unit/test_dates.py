"""Dates and times in text."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta

import pytest

from bylaw.text.dates import compare_moments, moment_of, shift_moment

DAY = date(2025, 3, 9)


@pytest.mark.parametrize(
    "text",
    [
        "2025-03-09",
        "2025/03/09",
        "March 9th, 2025",
        "Mar. 9, 2025",
        "9 March 2025",
        "Sunday, March 9 2025",
        " 2025-03-09 ",
    ],
)
def test_a_day_is_read_in_every_usual_form(text: str) -> None:
    assert moment_of(text) == DAY


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2025-03-09T14:30", datetime(2025, 3, 9, 14, 30)),
        ("2025-03-09 14:30:05", datetime(2025, 3, 9, 14, 30, 5)),
        ("2025-03-09T14:30:00Z", datetime(2025, 3, 9, 14, 30, tzinfo=UTC)),
        ("March 9th, 2025 at 2:30 pm", datetime(2025, 3, 9, 14, 30)),
        ("March 9, 2025, 12:05 AM", datetime(2025, 3, 9, 0, 5)),
    ],
)
def test_a_time_is_read_in_every_usual_form(text: str, wanted: datetime) -> None:
    assert moment_of(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "03/04/2025",
        "2025-02-30",
        "2025-3-9",
        "20250309",
        "March 2025",
        "due March 9, 2025",
        "1,500",
        "",
        "9" * 60,
        "٢٠٢٥-٠٣-٠٩",
    ],
)
def test_other_texts_are_no_dates(text: str) -> None:
    assert moment_of(text) is None


def test_days_compare_by_day_and_zones_are_not_guessed() -> None:
    noon = datetime(2025, 3, 9, 12)
    assert compare_moments(operator.le, noon, DAY) is True
    zoned = noon.replace(tzinfo=UTC)
    assert compare_moments(operator.lt, noon, zoned + timedelta(hours=3)) is None
    assert compare_moments(operator.lt, noon, zoned + timedelta(days=2)) is True


def test_days_stay_days_when_they_move_by_days() -> None:
    assert shift_moment(DAY, 86400) == date(2025, 3, 10)
    assert shift_moment(DAY, 3600) == datetime(2025, 3, 9, 1)
    assert shift_moment(DAY, 1e18) is None
