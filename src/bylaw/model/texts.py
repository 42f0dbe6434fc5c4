"""A text that is looked for."""

from __future__ import annotations

from msgspec import Struct


class TextHas(Struct, frozen=True):
    """Text that contains this."""

    text: str
    regex: bool = False
    ignore_case: bool = False
