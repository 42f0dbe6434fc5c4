"""Invariants about recovery: what an agent does after a fault has hit one of its calls.

`recovers_within` and `no_duplicate_side_effects` are rules, which the engine judges on the attempts of a run
(`faults.attempts`). `gives_up_politely` is about the words of the answer (`giving_up`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from bylaw.contract.model import KeepsRule
from bylaw.rules import parse_rules

_AFTER_FAULT = (
    'G (result("*", args.target = $t, result.faulted = true) -> F[<={window}] ('
    'result("*", args.target = $t, error = false) | tool("*", args.target != $t) | text(/(?s)\\S/)))'
)
_ONCE = (
    "G (result({tool}, args.same = $a) -> !("
    "result({tool}, args.same = $a, result.took_effect = true) & "
    "Y O result({tool}, args.same = $a, result.took_effect = true)))"
)
"""the call triggers it, so that a tool that is never called shows nothing"""


def recovers_within(calls: int) -> KeepsRule:
    """After a call that a fault hit, at most `calls` more of the same tool may pass until the agent has recovered.

    It has recovered when the same tool or model succeeds, when it calls another tool, or when it answers. An attempt is
    two positions, a call and a result; the position after them is that of an answer, or of one call too many.
    """
    return _rule(
        "recovers_within",
        _AFTER_FAULT.replace("{window}", str(2 * calls + 1)),
        f"after a fault on {{call}} the agent did not recover within {calls} call{'s' if calls != 1 else ''}",
    )


def no_duplicate_side_effects(tools: Sequence[str]) -> KeepsRule:
    """No two calls of a tool with equal arguments both took effect."""
    formula = " & ".join(
        _ONCE.replace("{tool}", json.dumps(tool, ensure_ascii=False)).replace("$a", f"$a{number}")
        for number, tool in enumerate(tools)
    )
    return _rule("no_duplicate_side_effects", formula, "{call} took effect more than once with equal arguments")


def _rule(id: str, formula: str, broken: str) -> KeepsRule:
    rule = {"id": id, "kind": "temporal", "scope": "session", "params": {"formula": formula}}
    parsed = parse_rules(json.dumps({"rules": [rule]}), format="json")
    if not parsed.ok:
        raise ValueError(parsed.diagnostics[0].message)
    return KeepsRule(parsed.rules[0], broken=broken)
