"""JSON in which an object has a key twice: programs differ in which of the two they use, so its value is unknown."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_LONGEST = 20
"""characters of a key that a message shows"""


def repeated_key(text: str | bytes, value: Any) -> str | None:
    """A key that an object in the text has twice, given the decoded value, in which the last one counts.

    Counting colons is enough nearly always: each member has one, and a member that was lost takes its colon along.
    Only text with an escaped colon, or with fewer colons, is read again.
    """
    colons = text.count(":") if isinstance(text, str) else text.count(b":")
    if type(value) is dict and len(value) == colons:
        return None
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if msgspec.json.encode(value).count(b":") == colons and b"\\u003a" not in data and b"\\u003A" not in data:
        return None
    try:
        json.loads(data, object_pairs_hook=_refuse_repeated)
    except RepeatedKey as error:
        return error.key
    except RecursionError:
        return "…"  # too deep to search, and a colon is missing or hidden: its value is unknown
    except ValueError:
        return None  # no JSON at all, so no program reads keys in it
    return None


class RepeatedKey(ValueError):
    def __init__(self, key: str) -> None:
        shown = key if len(key) <= _LONGEST else key[:_LONGEST] + "…"
        super().__init__(f"the key `{shown if shown.isprintable() else ascii(shown)[1:-1]}` is given twice")
        self.key = key


def loads_strictly(text: str | bytes, **hooks: Any) -> Any:
    """JSON in which no object has a key twice. `hooks`: of `json.loads`. Raises RepeatedKey, ValueError or
    RecursionError."""
    return json.loads(text, object_pairs_hook=_refuse_repeated, **hooks)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        raise RepeatedKey(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found
