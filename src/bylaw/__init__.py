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
    from bylaw.adapters.importers import load_trace, open_trace, write_trace
    from bylaw.api import check, diff
    from bylaw.api.guard import Guard
    from bylaw.dialects import load_guard, load_rules
    from bylaw.errors import BylawError, ExitCode, InputError
    from bylaw.jobs.guard.options import Options
    from bylaw.model.decision import Attempt, Decision
    from bylaw.model.diff import DiffReport
    from bylaw.model.guarding import Action
    from bylaw.model.report import CheckReport
    from bylaw.model.rule import Rule
    from bylaw.model.trace import Trace
    from bylaw.model.verdict import Outcome, Verdict

_HOMES = {
    "Action": "bylaw.model.guarding",
    "Attempt": "bylaw.model.decision",
    "BylawError": "bylaw.errors",
    "CheckReport": "bylaw.model.report",
    "Decision": "bylaw.model.decision",
    "DiffReport": "bylaw.model.diff",
    "ExitCode": "bylaw.errors",
    "Guard": "bylaw.api.guard",
    "InputError": "bylaw.errors",
    "Options": "bylaw.jobs.guard.options",
    "Outcome": "bylaw.model.verdict",
    "Rule": "bylaw.model.rule",
    "Trace": "bylaw.model.trace",
    "Verdict": "bylaw.model.verdict",
    "check": "bylaw.api",
    "diff": "bylaw.api",
    "load_guard": "bylaw.dialects",
    "load_rules": "bylaw.dialects",
    "load_trace": "bylaw.adapters.importers",
    "open_trace": "bylaw.adapters.importers",
    "write_trace": "bylaw.adapters.importers",
}

__all__ = [
    "Action",
    "Attempt",
    "BylawError",
    "CheckReport",
    "Decision",
    "DiffReport",
    "ExitCode",
    "Guard",
    "InputError",
    "Options",
    "Outcome",
    "Rule",
    "Trace",
    "Verdict",
    "check",
    "diff",
    "load_guard",
    "load_rules",
    "load_trace",
    "open_trace",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `bylaw` has no attribute `{name}`")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
