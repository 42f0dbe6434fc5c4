"""Invariants about recovery: what an agent does after a fault has hit one of its calls.

`recovers_within` and `no_duplicate_side_effects` are rules, which the engine judges on the attempts of a run
(`faults.attempts`). `gives_up_politely` is about the words of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import re2

from bylaw.contract.checks import CheckResult
from bylaw.contract.faults.attempts import Attempt
from bylaw.contract.model import KeepsRule
from bylaw.rules import parse_rules

_AFTER_FAULT = (
    'G (result("*", args.target = $t, result.faulted = true) -> F[<={window}] ('
    'result("*", args.target = $t, error = false) | tool("*", args.target != $t) | text(/(?s)\\S/)))'
)
_TOOK_EFFECT = "result({tool}, args.same = $a, result.took_effect = true)"


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
    effects = [
        _TOOK_EFFECT.replace("{tool}", json.dumps(tool, ensure_ascii=False)).replace("$a", f"$a{number}")
        for number, tool in enumerate(tools)
    ]
    formula = " & ".join(f"G !({effect} & Y O {effect})" for effect in effects)
    return _rule("no_duplicate_side_effects", formula, "{call} took effect more than once with equal arguments")


def _rule(id: str, formula: str, broken: str) -> KeepsRule:
    rule = {"id": id, "kind": "temporal", "scope": "session", "params": {"formula": formula}}
    parsed = parse_rules(json.dumps({"rules": [rule]}), format="json")
    if not parsed.ok:
        raise ValueError(parsed.diagnostics[0].message)
    return KeepsRule(parsed.rules[0], broken=broken)


_RAW_ERROR = re2.compile(
    r"(?m)Traceback \(most recent call last\)|^\s+at \S+ \(.*:\d+:\d+\)|\b[A-Z]\w*(?:Error|Exception)\b\s*[:(]|"
    r"\[Errno -?\d+\]|\bHTTP/1\.[01] [45]\d\d\b|^\s*\{\s*\"error\"|\bECONN(?:RESET|REFUSED)\b"
)
_RUDE = re2.compile(r"(?i)\b(?:idiot|stupid|shut up|your (?:own )?fault|not my problem|deal with it|damn|dummkopf)\b")
_GIVES_UP = re2.compile(
    r"(?i)\b(?:cannot|can't|can not|could(?:n't| not)|unable|unavailable|unreachable|not (?:available|able|possible)|"
    r"wasn't able|failed|failing|problem|trouble|issue|sorry|apolog\w*|try again|later|down|no access|don't have|"
    r"unfortunately|out of reach|leider|kann\b.*\bnicht|konnte\b.*\bnicht|entschuldig\w*|nicht (?:möglich|erreichbar)|"
    r"später|lo siento|no (?:puedo|pude|ha sido posible)|disculp\w*|más tarde|désolée?|je ne (?:peux|parviens)|"
    r"impossible|indisponible|plus tard)|к сожалению|не (?:могу|удалось|получилось)|извините|недоступ|позже"
)
_MOST_READ = 1 << 16


def gives_up_politely(answer: str, attempts: Sequence[Attempt]) -> CheckResult:
    """An answer after a fault has text, shows no raw error, is not rude, and says so if something did not work.

    Something did not work if the last attempt at a tool or model that a fault hit has failed.
    """
    answer = answer[:_MOST_READ].replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if not answer.strip():
        return CheckResult(False, "the answer is empty")
    for pattern, what in ((_RAW_ERROR, "shows a raw error"), (_RUDE, "is rude")):
        if found := pattern.search(answer):
            return CheckResult(False, f"the answer {what}: `{' '.join(found.group().split())}`")
    hit = {attempt.target for attempt in attempts if attempt.is_faulted}
    last = {attempt.target: attempt for attempt in attempts}
    failed = [f"`{target}`" for target, attempt in last.items() if target in hit and attempt.has_failed]
    if not failed:
        return CheckResult(True, "nothing that a fault hit was left undone")
    words = _GIVES_UP.search(answer)
    if words is None:
        return CheckResult(False, f"{', '.join(failed)} failed, and the answer does not say that anything went wrong")
    return CheckResult(True, f"{', '.join(failed)} failed, and the answer says so: `{words.group()}`")
