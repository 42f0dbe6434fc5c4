"""Personal data and secrets in an answer."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.contract.judging.judgement import Seen
from bylaw.text.redaction.personal import NAMES, find_personal
from bylaw.text.redaction.secrets import PATTERNS

_SHOWN = 5


def no_pii(answer: str) -> Seen:
    found = [f"{kind} {_masked(text)}" for kind, text in find_pii(answer)]
    if not found:
        return Seen(True, "no personal data and no secret found")
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Seen(False, f"found {', '.join(found[:_SHOWN])}{more}")


def find_pii(text: str) -> Iterator[tuple[str, str]]:
    """What was found, by kind."""
    for kind, pattern in PATTERNS.items():
        yield from ((kind, found.group()) for found in pattern.finditer(text))
    yield from ((NAMES[kind], text[start:end]) for kind, start, end in find_personal(text))


def _masked(text: str) -> str:
    """Enough to find it in the answer; a report is no place to publish it once more."""
    flat = " ".join(text.split())
    return f"`{flat[:3]}…{flat[-2:]}`" if len(flat) > 8 else "`…`"
