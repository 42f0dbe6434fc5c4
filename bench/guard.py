"""`make bench`, fourth part: how long the guard takes to decide a call, and how long others take for two of its rules.

Each figure is wall time in a process of its own, p50 and p99 of single decisions. A history is made call by call, with
results; then calls are decided one after the other, and what follows a decision (`record`) happens between two, not
timed. Without a store, stretches of about a millisecond in which the process had to wait for a core are left out,
unless all had to; with a store nothing is left out, since waiting for the disk is part of it.

invariant-ai, agent-governance-toolkit-core, cedarpy and ltl-harness run beside, on the two rules of the second table,
where `--peers-python` (or BYLAW_PEERS_PYTHON) names an interpreter that has them:

    python3 -m venv /tmp/peers
    /tmp/peers/bin/pip install invariant-ai agent-governance-toolkit-core cedarpy ltl-harness
    sudo apt install mona        # for ltl-harness
    .venv/bin/python bench/guard.py --peers-python /tmp/peers/bin/python

Bias: one agent, one thread, flat and short arguments, one call a second, calls and histories made beforehand; every
call that is timed in the first table is allowed. Of the peers, only the question itself is timed: what the host has to
do to be able to ask it (keep the history, or a flag) is not, but for what has to be passed in.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from time import perf_counter, perf_counter_ns, thread_time
from typing import Any, TypeAlias

# Nothing but the standard library up here: `peers_guard.py` imports this file where bylaw is not installed.

RULES = (4, 100, 1_000)
HISTORIES = (10, 1_000, 100_000)
STORES = {"none": "no store", "normal": "SQLite, survives kill -9", "full": "SQLite, survives power loss"}
WAYS = {"4": "four rules are about the tools called, the others about other tools", "all": "every rule is about them"}
SHARED_HISTORIES = (10, 100, 1_000)
SHARED = {
    "R1": "block send_email when the recipient is outside of one domain",
    "R2": "deny issue_refund unless verify_receipt happened earlier",
}
PEERS = ("invariant-ai", "agent-governance-toolkit-core", "cedarpy", "ltl-harness")
STRETCH = 0.001
"""seconds, about: less than a busy machine lets a process run at a stretch"""
SECONDS = 2.0
"""for each figure, once the history is there"""
MOST_TIMED = 20_000

Ask: TypeAlias = Callable[[int], Any]
"""ask about the i-th call; what it returns is passed on to what follows the decision"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", default=os.environ.get("BYLAW_PEERS_PYTHON"), help="has the peers")
    parser.add_argument("--most", type=int, default=100_000, help="longest history")
    parser.add_argument("--seconds", type=float, default=120, help="histories that take longer to make are left out")
    parser.add_argument("--only", choices=("ours", "peers"), help="one of the two tables")
    parser.add_argument("--measure", nargs=4, metavar=("STORE", "RULES", "WAY", "HISTORY"), help=argparse.SUPPRESS)
    parser.add_argument("--shared", nargs=3, metavar=("RULE", "ANSWER", "HISTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        store, rules, way, history = options.measure
        print(json.dumps(measure(store, int(rules), way, int(history), seconds=options.seconds)))
    elif options.shared:
        rule, answer, history = options.shared
        print(json.dumps(shared(rule, answer, int(history))))
    else:
        peers = find_peers(options.peers_python)
        print_machine(peers)
        if options.only != "peers":
            print_ours([history for history in HISTORIES if history <= options.most], options.seconds)
        if options.only != "ours":
            print_shared(peers, options.peers_python)


def print_machine(peers: dict[str, str]) -> None:
    import sqlite3

    ours = ", ".join(f"{name} {version(name)}" for name in ("bylaw", "msgspec", "google-re2"))
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {ours}, ", end="")
    print(
        f"SQLite {sqlite3.sqlite_version}; load average {os.getloadavg()[0]:.1f}; microseconds of wall time, p50 / p99"
    )
    if peers:
        print(f"beside: {', '.join(f'{name} {number}' for name, number in peers.items())}")
    missing = [peer for peer in PEERS if peer not in peers]
    if missing:
        print(f"not measured: {', '.join(missing)}, since --peers-python names no interpreter that has them")


def print_ours(histories: list[int], seconds: float) -> None:
    print("\na decision, after a history of so many calls of the session")
    for way, meaning in WAYS.items():
        print(f"  {way:4} {meaning}")
    print(f"\n{'rules':>6} {'concerned':>9}  {'store':7}" + "".join(f"{history:>18,}" for history in histories))
    rows = [(store, rules, "4") for rules in RULES for store in STORES]
    for store, rules, way in [*rows, *(("none", rules, "all") for rules in RULES[1:])]:
        command = [sys.executable, __file__, "--seconds", str(seconds), "--measure", store, str(rules), way]
        cells = "".join(f"{cell(run([*command, str(history)])):>18}" for history in histories)
        print(f"{rules:6,} {way:>9}  {store:7}{cells}", flush=True)


def print_shared(peers: dict[str, str], python: str | None) -> None:
    print("\none rule at a time, after a history of so many calls; where an answer is wrong, it says so")
    for rule, meaning in SHARED.items():
        print(f"  {rule}  {meaning}")
    print(f"\n{'':4} {'answer':6}  {'':30}" + "".join(f"{history:>24,}" for history in SHARED_HISTORIES))
    script = str(Path(__file__).with_name("peers_guard.py"))
    commands = {"bylaw": [sys.executable, __file__, "--shared"]}
    for name in json.loads(run([str(python), script, "variants"])) if peers else ():
        commands[name] = [str(python), script, name]
    for rule in SHARED:
        for answer in ("allow", "deny"):
            for name, command in commands.items():
                figures = [json.loads(run([*command, rule, answer, str(history)])) for history in SHARED_HISTORIES]
                if None not in figures:
                    cells = "".join(f"{cell(json.dumps(figure)):>24}" for figure in figures)
                    print(f"{rule:4} {answer:6}  {name:30}{cells}", flush=True)


def cell(output: str) -> str:
    figure = json.loads(output)
    if figure is None:
        return "–"
    wrong = "" if figure["right"] else " WRONG"
    return f"{_short(figure['p50'])} / {_short(figure['p99'])}{wrong}"


def _short(micros: float) -> str:
    return f"{micros:,.0f}" if micros >= 100 else f"{micros:.1f}"


def find_peers(python: str | None) -> dict[str, str]:
    """The peers that this interpreter has, with their versions."""
    if not python:
        return {}
    found: dict[str, str] = json.loads(run([python, str(Path(__file__).with_name("peers_guard.py")), "versions"]))
    return found


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


# -- the clock, the same for all --------------------------------------------------------------------------------------


class Figures:
    """Single decisions, in stretches of which those that had to wait for a core are left out, unless all had to."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self._keep_all = keep_all
        self._calm: list[int] = []
        self._all: list[int] = []

    def time(self, ask: Ask, after: Callable[[Any], object], numbers: Iterator[int], most: int) -> None:
        """At most so many decisions, within SECONDS."""
        begun, timed = perf_counter(), 0
        while timed < most and perf_counter() - begun < SECONDS:
            timed += self._stretch(ask, after, numbers, most - timed)

    def _stretch(self, ask: Ask, after: Callable[[Any], object], numbers: Iterator[int], most: int) -> int:
        spent: list[int] = []
        worked, started = thread_time(), perf_counter()
        while len(spent) < most:
            number = next(numbers)
            begun = perf_counter_ns()
            answer = ask(number)
            spent.append(perf_counter_ns() - begun)
            after(answer)
            if perf_counter() - started > STRETCH:
                break
        has_waited = perf_counter() - started > 1.05 * (thread_time() - worked)
        self._all += spent
        if self._keep_all or not has_waited:
            self._calm += spent
        return len(spent)

    def as_json(self, *, right: bool) -> dict[str, Any]:
        spent = sorted(self._calm if len(self._calm) >= 100 else self._all)
        p99 = spent[min(len(spent) - 1, len(spent) * 99 // 100)]
        return {"p50": statistics.median(spent) / 1e3, "p99": p99 / 1e3, "n": len(spent), "right": right}


def rounds(
    begin: Callable[[int], tuple[Ask, Callable[[Any], object]]], history: int, *, keep_all: bool = False
) -> Figures:
    """As many decisions are timed as the history has, so that a short history stays short; what short ones lack in
    length they get in rounds, each with a history of its own. The first of several only warms up."""
    figures, warm = Figures(keep_all=keep_all), history > 1_000
    started = perf_counter()
    for number in count():
        ask, after = begin(number)
        timed = figures if warm else Figures()
        timed.time(ask, after, count(history), min(history, MOST_TIMED))
        if warm and (history > 1_000 or perf_counter() - started > SECONDS):
            return figures
        warm = True
    raise AssertionError


# -- our side ---------------------------------------------------------------------------------------------------------

FOUR: list[dict[str, Any]] = [
    {
        "id": "own-domain",
        "when": {"tool_name_in": ["send_email"], "not": {"arg_regex": {"path": "to", "pattern": r"@corp\.example$"}}},
        "then": "block",
    },
    {
        "id": "verified",
        "kind": "temporal",
        "params": {"formula": "G (tool(issue_refund) -> O tool(verify_receipt))"},
        "then": "block",
    },
    {
        "id": "not-too-often",
        "when": {
            "tool_name_in": ["send_email"],
            "call_count_in_session_gt": {"tool": "send_email", "value": 1_000_000_000},
        },
        "then": "block",
    },
    {
        "id": "no-burst",
        "when": {
            "tool_name_in": ["issue_refund"],
            "call_count_in_window_gt": {"tool": "issue_refund", "value": 100, "windowSeconds": 300},
        },
        "inline": True,
        "then": "block",
    },
]
"""an argument, an order, a counter, a window"""


def rules(number: int, way: str) -> dict[str, Any]:
    """The four, and copies of them about other tools, or about these."""
    made = [json.loads(json.dumps(FOUR[i % 4])) for i in range(number)]
    for i, rule in enumerate(made):
        rule["id"] += f"-{i}"
        if i >= 4 and way == "4":
            text = json.dumps(rule)
            for tool in ("send_email", "issue_refund", "verify_receipt"):
                text = text.replace(tool, f"{tool}_{i}")
            made[i] = json.loads(text)
    return {"guard": {"rules": made}}


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("verify_receipt", {"order_id": "A-17"}),
    ("send_email", {"to": "ann@corp.example", "subject": "Your order", "body": "It is on its way."}),
    ("look_up_order", {"order_id": "A-17"}),
    ("issue_refund", {"order_id": "A-17", "amount": 12}),
)


class TooLong(Exception):
    """Nobody wants to wait for this history."""


def measure(store: str, number: int, way: str, history: int, *, seconds: float) -> dict[str, Any] | None:
    import bylaw

    with tempfile.TemporaryDirectory() as folder:
        guards = _guards(bylaw.load_guard(rules(number, way)), store, Path(folder) / "guard.db")
        refused: list[Any] = []

        def begin(round: int) -> tuple[Ask, Callable[[Any], object]]:
            guard = next(guards)
            session, decide, record = f"session-{round}", guard.decide, guard.record
            begun = perf_counter()
            for i in range(history):
                record(decide(_attempt(i, session)), "done")
                if i == 500 and (perf_counter() - begun) / i * history > seconds:
                    raise TooLong
            if history > 1_000:
                guard = next(guards)
                decide, record = guard.decide, guard.record
            # made beforehand: as many as are timed
            made = [_attempt(i, session) for i in range(history, history + min(history, MOST_TIMED))]

            def after(decision: Any) -> None:
                if not decision.allowed:
                    refused.append(decision)
                record(decision, "done")

            return (lambda i: decide(made[i - history])), after

        try:
            return rounds(begin, history, keep_all=store != "none").as_json(right=not refused)
        except TooLong:
            return None


def _guards(rules: Any, store: str, path: Path) -> Iterator[Any]:
    """The first makes a long history, the second is measured: one that makes sure of every call would take an hour."""
    import bylaw

    if store == "none":
        guard = bylaw.Guard(rules)
        while True:
            yield guard
    first = bylaw.Guard(rules, store=path, durability="normal")
    yield first
    first.store.close()
    second = bylaw.Guard(rules, store=path, durability="full" if store == "full" else "normal")
    while True:
        yield second


def _attempt(i: int, session: str) -> Any:
    import bylaw

    tool, arguments = CALLS[i % len(CALLS)]
    return bylaw.Attempt(tool=tool, arguments=arguments, session=session, ts=1e9 + i + 0.25)


def shared(rule: str, answer: str, history: int) -> dict[str, Any]:
    import bylaw

    guard = bylaw.Guard({"guard": {"rules": [FOUR[0] if rule == "R1" else FOUR[1]]}})
    wrong: list[Any] = []

    def begin(round: int) -> tuple[Ask, Callable[[Any], object]]:
        session = f"session-{round}"
        for tool, arguments in past(rule, answer, history):
            guard.record(guard.decide(bylaw.Attempt(tool=tool, arguments=arguments, session=session)), "done")
        asked = [question(rule, answer, i) for i in range(history)]
        made = [bylaw.Attempt(tool=tool, arguments=given, session=session) for tool, given in asked]

        def after(decision: Any) -> None:
            if decision.allowed is not (answer == "allow"):
                wrong.append(decision)
            if decision.allowed:
                guard.record(decision, "done")

        return (lambda i: guard.decide(made[i - history])), after

    return rounds(begin, history).as_json(right=not wrong)


# -- what all of us are asked -----------------------------------------------------------------------------------------


def past(rule: str, answer: str, history: int) -> list[tuple[str, dict[str, Any]]]:
    """Calls that were made before: look-ups, and at the start the verification, where the refund is to be allowed."""
    made: list[tuple[str, dict[str, Any]]] = [("look_up_order", {"order_id": f"A-{i}"}) for i in range(history)]
    if rule == "R2" and answer == "allow":
        made[0] = ("verify_receipt", {"order_id": "A-17"})
    return made


def question(rule: str, answer: str, i: int) -> tuple[str, dict[str, Any]]:
    """The call that is decided; another one each time, so that nobody can remember the answer."""
    if rule == "R2":
        return "issue_refund", {"order_id": f"A-{i}", "amount": 12}
    domain = "corp.example" if answer == "allow" else "elsewhere.example"
    return "send_email", {"to": f"ann{i}@{domain}", "subject": "Your order", "body": "It is on its way."}


if __name__ == "__main__":
    main()
