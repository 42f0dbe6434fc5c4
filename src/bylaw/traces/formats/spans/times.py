"""Times and durations as span formats record them."""

from __future__ import annotations

import re
from typing import Any

from bylaw.model.events import seconds

_DURATION = re.compile(r"(?:P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)")


def moment(value: Any) -> tuple[float | None, str | float | None]:
    """Seconds since 1970, and the time as recorded: text, or a number whose size tells its unit."""
    if isinstance(value, str):
        if not (value.isdigit() and value.isascii() and len(value) < 24):
            try:
                return (seconds(value), value) if value else (None, None)
            except (OverflowError, OSError):
                return None, value
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        return None, None
    try:
        found = _scaled(float(value))
    except OverflowError:  # an absurd number
        return None, None
    return found, found


def nanoseconds(value: str | int | None) -> float | None:
    """OTLP's times; 0 stands for none."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 24 else None
    return value / 1e9 if value is not None and value > 0 else None


def duration(value: Any) -> float | None:
    """Seconds of an ISO 8601 duration such as `PT1M39.4S`."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and len(value) < 64 else None
    if match is None:
        return None
    days, hours, minutes, secs = (float(part) if part else 0.0 for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs


def _scaled(value: float) -> float:
    for limit, scale in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if value >= limit:
            return value / scale
    return value
