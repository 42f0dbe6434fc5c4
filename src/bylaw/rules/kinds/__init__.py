"""The rule kinds, one file each: parameters, documentation, an example, and what the kind lowers to.

Adding one is a file here, its name in the two lists below, and a case file under `tests/cases`.
"""

from __future__ import annotations

from bylaw.rules.kind import Kind, KindModule
from bylaw.rules.kinds import (
    forbidden_text,
    max_total_tokens,
    max_turns,
    must_be_grounded,
    must_call_before,
    must_call_once,
    must_followup,
    must_include_text,
    must_match_json_schema,
    must_remain_consistent,
    no_call,
    required_stop_reason,
    temporal,
)

_MODULES: tuple[KindModule, ...] = (
    forbidden_text,
    max_total_tokens,
    max_turns,
    must_be_grounded,
    must_call_before,
    must_call_once,
    must_followup,
    must_include_text,
    must_match_json_schema,
    must_remain_consistent,
    no_call,
    required_stop_reason,
    temporal,
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in map(Kind.of, _MODULES)}


def kind_page(name: str) -> str:
    """The page of one kind, in Markdown."""
    return KINDS[name].page()
