"""Other guards on the two rules of `guard.py`, run by it under an interpreter that has them.

    peers_guard.py versions
    peers_guard.py variants
    peers_guard.py VARIANT RULE ANSWER HISTORY     p50 and p99 in microseconds; null where it cannot say the rule

Each is used as its documentation shows, with everything prepared that can be:

- invariant-ai: a LocalPolicy, parsed once; `a_analyze_pending` gets the past messages and the pending one, in one event
  loop that stays open. Its cap on rule bodies (INVARIANT_MAX_ITERATIONS, 100) is raised: a longer history would raise.
- agent-governance-toolkit-core: `agent_os.policies.PolicyEvaluator`. A rule has one condition on one field, and no
  history, so the host works out one flag. *whole*: the context holds the history too, for the audit entry.
- cedarpy: a PolicySet and Entities parsed once. *whole*: the names of past calls are a set in the context; *flag*: the
  host passes whether there was a verification.
- ltl-harness: its RunMonitor, as its PreToolUse hook asks it, without the hook's own text and recorder. It has no
  arguments, so it cannot say R1. Needs the program `mona`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from guard import PEERS, Ask, past, question, rounds


def main() -> None:
    match sys.argv[1:]:
        case ["versions"]:
            print(json.dumps(versions()))
        case ["variants"]:
            there = versions()
            print(json.dumps([name for name, (peer, _) in VARIANTS.items() if peer in there]))
        case [name, rule, answer, history]:
            print(json.dumps(measure(VARIANTS[name][1], rule, answer, int(history))))


def versions() -> dict[str, str]:
    found = {}
    for peer in PEERS:
        try:
            found[peer] = version(peer)
        except PackageNotFoundError:
            continue
    if shutil.which("mona") is None:
        found.pop("ltl-harness", None)
    return found


def measure(prepare: Callable[[str, str, int], Ask | None], rule: str, answer: str, history: int) -> Any:
    ask = prepare(rule, answer, history)
    if ask is None:
        return None
    wrong: list[bool] = []

    def after(allowed: bool) -> None:
        if allowed is not (answer == "allow"):
            wrong.append(allowed)

    return rounds(lambda _: (ask, after), history).as_json(right=not wrong)


INVARIANT = {
    "R1": r"""
raise "outside of the domain" if:
    (call: ToolCall)
    call is tool:send_email
    not match(r".*@corp\.example$", call.function.arguments.to)
""",
    "R2": """
from invariant import count

raise "not verified" if:
    (call: ToolCall)
    call is tool:issue_refund
    count(max=0):
        (earlier: ToolCall)
        earlier is tool:verify_receipt
""",
}


def invariant(rule: str, answer: str, history: int) -> Ask:
    os.environ["INVARIANT_MAX_ITERATIONS"] = "1000000000"
    from invariant.analyzer.policy import LocalPolicy

    policy, loop = LocalPolicy.from_string(INVARIANT[rule]), asyncio.new_event_loop()
    before = [
        message
        for i, (tool, arguments) in enumerate(past(rule, answer, history))
        for message in (_call(f"c{i}", tool, arguments), {"role": "tool", "tool_call_id": f"c{i}", "content": "done"})
    ]

    def ask(i: int) -> bool:
        pending = [_call(f"c{i}", *question(rule, answer, i))]
        return not loop.run_until_complete(policy.a_analyze_pending(before, pending)).errors

    return ask


def _call(call_id: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def toolkit(*, whole: bool) -> Callable[[str, str, int], Ask]:
    def prepare(rule: str, answer: str, history: int) -> Ask:
        with warnings.catch_warnings(action="ignore"):  # it says of itself that it is deprecated in favour of itself
            from agent_os.policies import PolicyDocument, PolicyEvaluator

        condition = (
            {"field": "to", "operator": "matches", "value": r"^(?!.*@corp\.example$)"}
            if rule == "R1"
            else {"field": "unverified_refund", "operator": "eq", "value": True}
        )
        document = {
            "name": "bench",
            "rules": [{"name": rule, "condition": condition, "action": "deny"}],
            "defaults": {"action": "allow"},
        }
        evaluate = PolicyEvaluator(policies=[PolicyDocument.model_validate(document)]).evaluate
        before = [{"tool_name": tool, **arguments} for tool, arguments in past(rule, answer, history)]
        more: dict[str, Any] = {"history": before} if whole else {}
        is_verified = any(call["tool_name"] == "verify_receipt" for call in before)

        def ask(i: int) -> bool:
            tool, arguments = question(rule, answer, i)
            context = {"tool_name": tool, **arguments, **more}
            if rule == "R2":
                context["unverified_refund"] = not is_verified
            return bool(evaluate(context).allowed)

        return ask

    return prepare


CEDAR = {
    "R1": 'forbid(principal, action == Action::"send_email", resource) unless { context.to like "*@corp.example" };',
    "whole": 'forbid(principal, action == Action::"issue_refund", resource)'
    ' unless { context.history.contains("verify_receipt") };',
    "flag": 'forbid(principal, action == Action::"issue_refund", resource) unless { context.verified };',
}


def cedar(*, whole: bool) -> Callable[[str, str, int], Ask]:
    def prepare(rule: str, answer: str, history: int) -> Ask:
        from cedarpy import Entities, PolicySet, is_authorized

        text = CEDAR["R1" if rule == "R1" else "whole" if whole else "flag"]
        policies, entities = (
            PolicySet.from_str(f"permit(principal, action, resource);\n{text}"),
            Entities.from_json_str("[]"),
        )
        before = [tool for tool, _ in past(rule, answer, history)]
        more: dict[str, Any] = {"history": before} if whole else {"verified": "verify_receipt" in before}

        def ask(i: int) -> bool:
            tool, arguments = question(rule, answer, i)
            request = {
                "principal": 'Agent::"a"',
                "action": f'Action::"{tool}"',
                "resource": 'Tool::"t"',
                "context": {**arguments, **more},
            }
            return bool(is_authorized(request, policies, entities).allowed)

        return ask

    return prepare


LTL = {
    "activities": {name: {"tool": name} for name in ("verify_receipt", "issue_refund", "look_up_order")},
    "rules": [
        {
            "id": "R2",
            "template": "Precedence",
            "params": {"a": "verify_receipt", "b": "issue_refund"},
            "posture": "seatbelt",
        }
    ],
}


def ltl(rule: str, answer: str, history: int) -> Ask | None:
    if rule == "R1":
        return None
    from ltl_harness.engine.monitor import RunMonitor
    from ltl_harness.engine.rulebook import candidate_activities, parse_rulebook

    rulebook = parse_rulebook(LTL)
    monitor = RunMonitor(rulebook)
    for tool, _ in past(rule, answer, history):
        monitor.advance(tool)
    return lambda i: monitor.decide(candidate_activities(rulebook, question(rule, answer, i)[0]))["decision"] == "allow"


VARIANTS: dict[str, tuple[str, Callable[[str, str, int], Ask | None]]] = {
    "invariant-ai": ("invariant-ai", invariant),
    "agt-core, whole": ("agent-governance-toolkit-core", toolkit(whole=True)),
    "agt-core, flag": ("agent-governance-toolkit-core", toolkit(whole=False)),
    "cedarpy, whole": ("cedarpy", cedar(whole=True)),
    "cedarpy, flag": ("cedarpy", cedar(whole=False)),
    "ltl-harness": ("ltl-harness", ltl),
}


if __name__ == "__main__":
    main()
