"""`destructive SQL`: the statements themselves, in the arguments of tools that run them."""

from __future__ import annotations

import re

from bylaw.comply.prompt.prose.binding import Bound, is_destructive
from bylaw.comply.prompt.prose.context import Tools, roots
from bylaw.comply.prompt.prose.lowering import ArgTest

_SPEAKS_OF_SQL = re.compile(
    r"\bsql\b|\b(?:database|db) (?:quer(?:y|ies)|statements?|commands?|operations?)\b", re.IGNORECASE
)
_HOLDS_SQL = frozenset(roots("sql query statement command"))
_STORE_WORDS = frozenset(roots("table database row record column schema index view collection sql query"))
_DESTROYS = r"\b(?:drop|delete|truncate|alter|update|grant|revoke)\b"


def narrowed(text: str, bound: Bound, tools: Tools) -> Bound:
    """Of the tools that destroy, those whose names speak of a database, where some do."""
    if not (_SPEAKS_OF_SQL.search(text) and is_destructive(text)):
        return bound
    stores = tuple(name for name in bound.tools if _STORE_WORDS & set(roots(name)))
    return Bound(stores, bound.tier, bound.confidence) if stores else bound


def statements(text: str, tools: Tools) -> list[tuple[tuple[str, ...], tuple[ArgTest, ...]]]:
    """The tools that run SQL, each with the test that makes a statement destructive."""
    if not (_SPEAKS_OF_SQL.search(text) and is_destructive(text)):
        return []
    return [
        ((name,), ((param, "matches", _DESTROYS),))
        for name, spec in tools.specs.items()
        for param in spec.params
        if _HOLDS_SQL & set(roots(param)) and (_STORE_WORDS & set(roots(name)) or "sql" in param)
    ]
