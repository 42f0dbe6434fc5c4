"""A line less what the format's own places hold of it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from bylaw.traces.formats.bylaw.wire import Line
from bylaw.traces.formats.restored.slots import Slot

_LEFT_OUT = {"messages": UNSET, "tools": UNSET}
"""what stands for nothing in fields that do not know null"""


def slot_of(number: int, line: Line, held: dict[str, Any]) -> Slot:
    """`held`: the fields that stand elsewhere, and in which form."""
    for field in held:
        setattr(line, field, _LEFT_OUT.get(field))
    return Slot(number, Raw(msgspec.json.encode(line)), held)
