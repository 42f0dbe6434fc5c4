"""`make bench`, third part: microseconds per event of temporal rules, by number of formulas and length of history.

Each figure is wall time in a process of its own: a history is fed, then the events after it are timed in batches of
about a millisecond, and the median batch counts. reelay and rtamt run beside, on the two formulas that they can say
too, where `--peers-python` (or BYLAW_PEERS_PYTHON) names an interpreter that has them:

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install reelay rtamt
    .venv/bin/python bench/temporal.py --peers-python /tmp/peers/bin/python

Bias: one call a second, of the two tools by turns, nothing else, no rule broken but in the row that says so; all of it
made before the clock starts. Our figure is that of the whole engine: routing, state, verdicts. The peers get booleans,
one monitor a formula, the same object for each monitor. They have no index, so all their monitors see every event.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

# Nothing but the standard library up here: `peers_temporal.py` imports this file where bylaw is not installed.

FORMULAS = {
    "a": "G (tool({b}) -> O tool({a}))",
    "b": "G (tool({b}) -> O[<=300s] tool({a}))",
    "c": "G (tool({b}, args.id = $i) -> O tool({a}, args.id = $i))",
    "d": "G (tool({a}, args.id = $i) -> F[<=300s] tool({b}, args.id = $i))",
    "e": "G (tool({a}) -> count(tool({a})) <= 10000000)",
    "f": "G (tool({a}) -> count[<=300s](tool({a})) <= 10000000)",
}
SHARED = ("a", "b")
"""what reelay and rtamt can say too"""
WAYS = {
    "all": "every event concerns every formula",
    "one": "every event concerns one formula",
    "broken": "as all, and `a` is never called",
}
HISTORIES = (100, 1_000, 10_000, 100_000, 1_000_000)
LAG = 50
"""calls of `a` between that with an id and the `b` with the same: as many obligations of (d) are open at once"""
BATCH = 0.001
"""seconds, about: less than a busy machine lets a process run at a stretch"""
PEERS = ("reelay", "rtamt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", default=os.environ.get("BYLAW_PEERS_PYTHON"), help="has reelay and rtamt")
    parser.add_argument("--most", type=int, default=1_000_000, help="longest history; over 100,000 for 1 formula only")
    parser.add_argument("--seconds", type=float, default=120, help="histories that take longer to feed are left out")
    parser.add_argument("--measure", nargs=4, metavar=("LETTER", "WAY", "COUNT", "HISTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        letter, way, count, history = options.measure
        print(json.dumps(measure(letter, way, int(count), int(history))))
        return
    peers = find_peers(options.peers_python)
    print_machine(peers)
    if peers:
        compare_verdicts(options.peers_python)
    histories = [history for history in HISTORIES if history <= options.most]
    print(f"\n{'':2}{'formulas':>9} {'concerned':>9}  {'':7}" + "".join(f"{history:>11,}" for history in histories))
    for letter, way, count in rows():
        commands = {"bylaw": [sys.executable, __file__, "--measure", letter, way, str(count)]}
        if letter in SHARED and way == "all":
            script = str(Path(__file__).with_name("peers_temporal.py"))
            commands |= {peer: [options.peers_python, script, peer, letter, str(count)] for peer in peers}
        print_row(letter, way, count, commands, histories, options.seconds)


def rows() -> Iterator[tuple[str, str, int]]:
    for letter in FORMULAS:
        yield from ((letter, "all", count) for count in (1, 10, 100))
        yield letter, "one", 100
    yield "a", "broken", 1


def find_peers(python: str | None) -> dict[str, str]:
    """The peers that this interpreter has, with their versions."""
    if not python:
        return {}
    script = Path(__file__).with_name("peers_temporal.py")
    found: dict[str, str] = json.loads(run([python, str(script), "versions"]))
    return found


def print_machine(peers: dict[str, str]) -> None:
    ours = ", ".join(f"{name} {version(name)}" for name in ("bylaw", "msgspec", "immutables"))
    theirs = ", ".join(f"{name} {number}" for name, number in peers.items())
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {ours}")
    print(f"load average {os.getloadavg()[0]:.1f}; wall time, median of batches of about a millisecond")
    if theirs:
        print(f"beside: {theirs}")
    missing = [peer for peer in PEERS if peer not in peers]
    if missing:
        print(f"not measured: {' and '.join(missing)}, since --peers-python names no interpreter that has them")
    print("\nmicroseconds per event, all formulas together, after a history of so many events")
    for letter, formula in FORMULAS.items():
        print(f"  {letter}  {formula.format(a='a', b='b')}")
    for way, meaning in WAYS.items():
        print(f"  {way:7} {meaning}")


def print_row(
    letter: str, way: str, count: int, commands: dict[str, list[str]], histories: list[int], seconds: float
) -> None:
    """One line for each of us; their figures are taken by turns, so that a busy moment hits all of them."""
    cells: dict[str, list[float | None]] = {name: [] for name in commands}
    for history in histories:
        for name, command in commands.items():
            last = next((cell for cell in reversed(cells[name]) if cell is not None), 0.0)
            too_long = history * last / 1e6 > seconds or (history > 100_000 and count > 1)
            figure = None if too_long else json.loads(run([*command, str(history)]))["micros"]
            cells[name].append(figure)
    for name, found in cells.items():
        line = "".join("          –" if cell is None else f"{cell:11.2f}" for cell in found)
        print(f"{letter:2}{count:9} {way:>9}  {name:7}{line}", flush=True)


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


# -- the clock, the same for all --------------------------------------------------------------------------------------


def sample(make: Callable[[], Callable[[Any], object]], stream: Callable[[], Iterable[Any]], history: int) -> float:
    """Microseconds per event after the history: the median batch.

    As many events are timed as the history has, 4,000 at most, so that a short history stays short; what short ones
    lack in length they get in rounds, each from the beginning. Batches in which the process had to wait for a core are
    left out, unless all had to.
    """
    rounds = [_round(make(), iter(stream()), history)]
    begun = perf_counter()
    while history <= 1_000 and perf_counter() - begun < 2:
        rounds.append(_round(make(), iter(stream()), history))
    batches = [batch for found in rounds[1:] or rounds for batch in found]  # the first of several only warms up
    calm = [micros for micros, has_waited in batches if not has_waited]
    return statistics.median(calm or [micros for micros, _ in batches])


def _round(feed: Callable[[Any], object], events: Iterator[Any], history: int) -> list[tuple[float, bool]]:
    begun = perf_counter()
    for event in islice(events, history):
        feed(event)
    pace = (perf_counter() - begun) / history
    timed = list(islice(events, min(history, 4_000)))
    size = min(len(timed), max(1, round(BATCH / pace)))
    return [_batch(feed, timed[i : i + size]) for i in range(0, len(timed) - size + 1, size)]


def _batch(feed: Callable[[Any], object], batch: list[Any]) -> tuple[float, bool]:
    """Microseconds per event, and whether the process had to wait for a core meanwhile."""
    worked, started = thread_time(), perf_counter()
    for event in batch:
        feed(event)
    spent = perf_counter() - started
    return spent / len(batch) * 1e6, spent > 1.05 * (thread_time() - worked)


# -- our side ---------------------------------------------------------------------------------------------------------


def measure(letter: str, way: str, count: int, history: int) -> dict[str, float]:
    from bylaw.engine.evaluation import Evaluation

    program = compiled(letter, way, count)
    made: list[Evaluation] = []

    def make() -> Callable[[Any], object]:
        made.append(Evaluation(program))
        return made[-1].step

    micros = sample(make, lambda: calls(way, count), history)
    made[-1].end(complete=False)
    outcomes = {str(outcome) for outcome in made[-1].outcomes().values()}
    if ("violated" in outcomes) is not (way == "broken") or "error" in outcomes:
        print(f"({letter}) {way}: unexpected outcome {outcomes}", file=sys.stderr)
    return {"micros": micros}


def compiled(letter: str, way: str, count: int) -> Any:
    """With `all` and `broken` each formula names tools of its own beside those that are called."""
    from bylaw.engine.compile import compile_rules
    from bylaw.rules import load_rules

    alone = "{tool}{i}" if way == "one" else "{tool} | {tool}{i}"
    rules = []
    for i in range(count):
        names = {tool: alone.format(tool=tool, i=i) for tool in ("a", "b")}
        formula = FORMULAS[letter].format(**names)
        rules.append({"id": f"r{i}", "kind": "temporal", "scope": "trace", "params": {"formula": formula}})
    return compile_rules(load_rules(rules).rules)


def calls(way: str, count: int) -> Iterator[Any]:
    """A call a second, `a` and `b` by turns; with `one` the tools of one formula after the other."""
    from bylaw.model.events import Origin, Response, ToolCall

    origin = Origin("session")
    # with `one`, a whole number of rounds, so that an id comes back to the formula that knows it
    lag = count * max(1, LAG // count) if way == "one" else LAG
    yield Response(origin=origin, turn=0, at=0.0)
    for i in range(10**9):
        pair = i // 2
        which = str(pair % count) if way == "one" else ""
        name = "b" if way == "broken" or i % 2 else "a"
        number = pair - lag if i % 2 and pair >= lag else pair
        given = {"id": f"order-{number}"}
        yield ToolCall(origin=origin, turn=0, at=float(i), name=name + which, call_id=f"call-{i}", arguments=given)


# -- whether all of us mean the same ----------------------------------------------------------------------------------


def booleans() -> Iterator[tuple[bool, bool]]:
    """`a` and `b` at each second: what `calls` yields, for the peers."""
    for i in range(10**9):
        yield i % 2 == 0, i % 2 == 1


def chances() -> list[bool]:
    """Whether `a` is called rather than `b`, rarely enough for windows to close."""
    rng = random.Random(1)
    return [rng.random() < 0.004 for _ in range(5_000)]


def compare_verdicts(python: str) -> None:
    script = str(Path(__file__).with_name("peers_temporal.py"))
    for letter in SHARED:
        ours = broken_at(letter)
        for peer in find_peers(python):
            theirs = json.loads(run([python, script, peer, letter, "verdicts"]))
            same = "the same" if ours == theirs else "NOT the same"
            print(f"({letter}) on 5,000 random events: {len(ours):,} broken; {peer} finds {same}")


def broken_at(letter: str) -> list[int]:
    from bylaw.engine.evaluation import Evaluation
    from bylaw.model.events import Origin, ToolCall

    step, origin = Evaluation(compiled(letter, "all", 1)).step, Origin("session")
    events = (
        ToolCall(origin=origin, turn=0, at=float(i), name="a" if is_a else "b", call_id=f"call-{i}")
        for i, is_a in enumerate(chances())
    )
    return [i for i, event in enumerate(events) if step(event)]


if __name__ == "__main__":
    main()
