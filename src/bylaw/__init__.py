"""Bylaw holds AI agents to their rules.

    trace = bylaw.load_trace("run.jsonl")
    rules = bylaw.load_rules("bylaw.yaml")
    report = bylaw.check(trace, rules)

Everything is imported when it is first used, so that `import bylaw` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bylaw.check.api import check, diff
    from bylaw.comply.api import Compliance, check_compliance, check_compliance_sync
    from bylaw.comply.model import BehavioralRule, ComplianceResult, Violation
    from bylaw.contract.api import run_contract
    from bylaw.contract.live.tools import tool
    from bylaw.contract.results import ContractReport
    from bylaw.diff.model import DiffReport
    from bylaw.errors import BylawError, ExitCode, FeatureNotEnabledError, InputError, JudgeUnreachable
    from bylaw.guard.api import Guard
    from bylaw.guard.audit.api import verify_audit
    from bylaw.guard.backtest.api import backtest, promote, propose
    from bylaw.guard.decide.options import Options
    from bylaw.guard.decision import Attempt, Decision
    from bylaw.guard.incidents.webhooks.signing import verify_webhook
    from bylaw.inspect.api import timeline
    from bylaw.inspect.convert import convert
    from bylaw.model.guarding import Action
    from bylaw.model.report import CheckReport
    from bylaw.model.rule import Rule
    from bylaw.model.trace import Trace
    from bylaw.model.verdict import Outcome, Verdict
    from bylaw.record.api import record
    from bylaw.rules import load_contract, load_guard, load_rules
    from bylaw.traces import load_trace, open_trace
    from bylaw.traces.conversion import Conversion
    from bylaw.traces.export import write_trace

_HOMES = {
    "Action": "bylaw.model.guarding",
    "Attempt": "bylaw.guard.decision",
    "BehavioralRule": "bylaw.comply.model",
    "BylawError": "bylaw.errors",
    "CheckReport": "bylaw.model.report",
    "Compliance": "bylaw.comply.api",
    "ComplianceResult": "bylaw.comply.model",
    "ContractReport": "bylaw.contract.results",
    "Conversion": "bylaw.traces.conversion",
    "Decision": "bylaw.guard.decision",
    "DiffReport": "bylaw.diff.model",
    "ExitCode": "bylaw.errors",
    "FeatureNotEnabledError": "bylaw.errors",
    "Guard": "bylaw.guard.api",
    "InputError": "bylaw.errors",
    "JudgeUnreachable": "bylaw.errors",
    "Options": "bylaw.guard.decide.options",
    "Outcome": "bylaw.model.verdict",
    "Rule": "bylaw.model.rule",
    "Trace": "bylaw.model.trace",
    "Verdict": "bylaw.model.verdict",
    "Violation": "bylaw.comply.model",
    "backtest": "bylaw.guard.backtest.api",
    "check": "bylaw.check.api",
    "check_compliance": "bylaw.comply.api",
    "check_compliance_sync": "bylaw.comply.api",
    "convert": "bylaw.inspect.convert",
    "diff": "bylaw.check.api",
    "load_contract": "bylaw.rules",
    "load_guard": "bylaw.rules",
    "load_rules": "bylaw.rules",
    "load_trace": "bylaw.traces",
    "open_trace": "bylaw.traces",
    "promote": "bylaw.guard.backtest.api",
    "propose": "bylaw.guard.backtest.api",
    "record": "bylaw.record.api",
    "timeline": "bylaw.inspect.api",
    "tool": "bylaw.contract.live.tools",
    "run_contract": "bylaw.contract.api",
    "verify_webhook": "bylaw.guard.incidents.webhooks.signing",
    "verify_audit": "bylaw.guard.audit.api",
    "write_trace": "bylaw.traces.export",
}

__all__ = [
    "Action",
    "Attempt",
    "BehavioralRule",
    "BylawError",
    "CheckReport",
    "Compliance",
    "ComplianceResult",
    "ContractReport",
    "Conversion",
    "Decision",
    "DiffReport",
    "ExitCode",
    "FeatureNotEnabledError",
    "Guard",
    "InputError",
    "JudgeUnreachable",
    "Options",
    "Outcome",
    "Rule",
    "Trace",
    "Verdict",
    "Violation",
    "backtest",
    "check",
    "check_compliance",
    "check_compliance_sync",
    "convert",
    "diff",
    "load_contract",
    "load_guard",
    "load_rules",
    "load_trace",
    "open_trace",
    "promote",
    "propose",
    "record",
    "run_contract",
    "timeline",
    "tool",
    "verify_audit",
    "verify_webhook",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `bylaw` has no attribute `{name}`")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
