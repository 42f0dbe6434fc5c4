"""Whether two values are the same to the letter."""

from __future__ import annotations

from typing import Any

import msgspec


def same(left: Any, right: Any) -> bool:
    """For `==`, 1 and true are the same."""
    return left is right or (bool(left == right) and msgspec.json.encode(left) == msgspec.json.encode(right))
