"""How far a readable rule looks: `10m`, `10 minutes`, `3 turns`, `5 events`."""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.rules.located import Node, ScalarNode
from bylaw.rules.params import Context, ParamType
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.temporal.windows import SECONDS, UNIT_WORDS, measure
from bylaw.rules.words import quote

_AMOUNT = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]+)\s*")
_UNITS = {**{unit: unit for unit in ("e", "t", *SECONDS)}, **UNIT_WORDS}
_FORM = "write a number and a unit, such as `10m`, `2 hours`, `3 turns` or `5 events`"


class Within(Struct, frozen=True):
    bound: str
    """as a formula has it"""
    given: str
    """as the user wrote it"""


def _read(node: Node, name: str, context: Context) -> Within | None:
    text = node.value if isinstance(node, ScalarNode) else None
    found = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    unit = _UNITS.get(found[2]) or _UNITS.get(found[2].lower()) if found else None
    if not found or not unit or not measure(found[1], unit):
        report_wrong_type(node, quote(name), "a stretch of time, turns or events", context.problems, help=_FORM)
        return None
    return Within(f"{found[1]}{unit}", found[0].strip())


WITHIN = ParamType(
    _read,
    {"type": "string", "pattern": r"^\s*[0-9]{1,18}(\.[0-9]{1,18})?\s*[A-Za-z]+\s*$"},
    plain=lambda within: within.given,
)
