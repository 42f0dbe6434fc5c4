"""Arguments of a call, in whatever shape they were recorded. Nothing here can fail."""

from __future__ import annotations

from typing import Any

from bylaw.traces.records.jsontext import REFUSED, Fault, decode_carefully, decode_quickly


def read_arguments(recorded: Any) -> tuple[Any, str | None]:
    """The parsed arguments, and the text they were recorded as where they were text.

    Text that is JSON is parsed; text that is not leaves the arguments None. Any other value is taken as it is.
    """
    if not isinstance(recorded, str):
        return recorded, None
    try:
        return decode_quickly(recorded), recorded
    except REFUSED:
        pass
    try:
        return decode_carefully(recorded)[0], recorded
    except Fault:
        return None, recorded
