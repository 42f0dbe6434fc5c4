"""Feeding mutated inputs to the readers and the rule files, and watching what comes out."""

from __future__ import annotations

import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bylaw.check.api import check
from bylaw.check.report import render_terminal
from bylaw.errors import InputError
from bylaw.lint.contradictions import analyse
from bylaw.lint.report import read_files
from bylaw.report.diagnostics import render_diagnostics
from bylaw.rules import load_rules
from bylaw.traces import open_trace
from tests.fuzz.mutate import mutate
from tests.fuzz.seeds import RULES, TRACES, rule_seeds, trace_seeds

LIMIT = 10
"""Seconds of CPU one input may take before it counts as a hang."""


@dataclass
class Outcome:
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    failures: list[tuple[str, bytes, str]] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.failures += other.failures


def run_share(share: tuple[int, int, int]) -> Outcome:
    """`run_many` of a seed, a first input and a count; `imap` of a pool passes one argument."""
    return run_many(*share)


def run_many(seed: int, first: int, count: int) -> Outcome:
    outcome = Outcome()
    rules = load_rules(RULES).rules
    seeds = [(f"trace{s}", data, s) for s, data in trace_seeds()] + [(f"rules{s}", data, s) for s, data in rule_seeds()]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            rng = random.Random(f"{seed}/{number}")
            name, data, suffix = rng.choice(seeds)
            path = Path(folder, f"input{suffix}")
            path.write_bytes(mutate(data, rng))
            feed = (
                (lambda p=path, r=rng: _feed_trace(p, rules, r))
                if name.startswith("trace")
                else (lambda p=path: _feed_rules(p))
            )
            _one(outcome, f"{number}{suffix}", path, feed)
    return outcome


def _one(outcome: Outcome, name: str, path: Path, feed: Callable[[], bool]) -> None:
    started = time.process_time()
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)  # of CPU: a busy machine is not a hang
    outcome.inputs += 1
    try:
        if feed():
            outcome.accepted += 1
        else:
            outcome.refused += 1
    except Exception as problem:
        where = traceback.extract_tb(problem.__traceback__)[-1]
        outcome.failures.append((name, path.read_bytes(), f"{problem!r} at {where.filename}:{where.lineno}"[:300]))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        outcome.slowest = max(outcome.slowest, time.process_time() - started)


def _hang(*_: Any) -> None:
    raise TimeoutError(f"no answer within {LIMIT} s of CPU")


def _feed_trace(path: Path, rules: Any, rng: random.Random) -> bool:
    try:
        source = open_trace(str(path), format=rng.choice(TRACES), skip_bad=rng.random() < 0.5)
        report = check([source], rules)
        failed = [f.verdict.message for f in report.findings if f.verdict.outcome == "error"]
        # messages that are nested too deeply are decoded when a rule asks for them: that rule cannot be evaluated
        assert all("recursion depth" in message for message in failed), failed
        render_terminal(report)
        render_diagnostics(list(source.problems))
    except InputError as problem:
        assert problem.diagnostics, "an input was refused without a reason"
        render_diagnostics(problem.diagnostics)
        return False
    return True


def _feed_rules(path: Path) -> bool:
    diagnostics = read_files([str(path)]).diagnostics
    render_diagnostics(diagnostics)
    try:
        ruleset = load_rules(str(path))
    except InputError:
        assert any(diagnostic.is_error for diagnostic in diagnostics), "load_rules and lint disagree"
        return False
    assert not any(diagnostic.is_error for diagnostic in diagnostics), "load_rules and lint disagree"
    check([], ruleset.rules)
    analyse(ruleset.rules)
    return True
