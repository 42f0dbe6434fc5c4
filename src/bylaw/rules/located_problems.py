"""What can be wrong with a text in YAML and JSON alike."""

from __future__ import annotations

from bylaw.rules.located import MAX_DEPTH, MAX_NODES, Located, ScalarNode
from bylaw.rules.problems import Problems, Unreadable
from bylaw.rules.words import quote


def report_duplicate_key(key: ScalarNode, first: ScalarNode, problems: Problems) -> None:
    problems.error(
        code="duplicate-key",
        message=f"the key {quote(str(key.value))} is given twice",
        at=key,
        help="keep one of them; other tools would silently take the last",
        related=(problems.related(first, "first given here"),),
    )


def check_depth(depth: int, at: Located, problems: Problems) -> None:
    if depth > MAX_DEPTH:
        message = f"the values are nested more than {MAX_DEPTH} levels deep"
        problems.error(code="too-deep", message=message, at=at)
        raise Unreadable


def check_count(nodes: int, at: Located, problems: Problems) -> None:
    if nodes > MAX_NODES:
        problems.error(
            code="too-large",
            message=f"the file holds more than {MAX_NODES:,} values",
            at=at,
            help="split it into several files; aliases count as often as they are used",
        )
        raise Unreadable
