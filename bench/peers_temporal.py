"""reelay and rtamt on the events of `temporal.py`, run by it under an interpreter that has them.

    peers_temporal.py versions
    peers_temporal.py PEER LETTER COUNT HISTORY     microseconds per event, COUNT monitors
    peers_temporal.py PEER LETTER verdicts          where the random events break the formula

Both are used as their documentation shows: reelay's discrete monitor gets a dict and answers with one for each event
(docs/gs_python.md), rtamt's gets the time and a list of pairs and answers with a robustness (README, "Discrete-time
online monitor"). A step is a second for both; neither is told of gaps. rtamt here is its Python, not its C++ back end,
which the published wheels do not hold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from temporal import PEERS, booleans, chances, sample

REELAY = {"a": "{b} -> once {a}", "b": "{b} -> once[0:300] {a}"}
RTAMT = {"a": "(b >= 0.5) implies (once (a >= 0.5))", "b": "(b >= 0.5) implies (once[0,300] (a >= 0.5))"}


def main() -> None:
    match sys.argv[1:]:
        case ["versions"]:
            print(json.dumps(versions()))
        case [peer, letter, "verdicts"]:
            breaks, events = MONITORS[peer](letter), INPUTS[peer]((is_a, not is_a) for is_a in chances())
            print(json.dumps([i for i, event in enumerate(events) if breaks(event)]))
        case [peer, letter, count, history]:
            monitors = MONITORS[peer]

            def make() -> Callable[[Any], object]:
                return together([monitors(letter) for _ in range(int(count))])

            print(json.dumps({"micros": sample(make, lambda: INPUTS[peer](booleans()), int(history))}))


def versions() -> dict[str, str]:
    found = {}
    for peer in PEERS:
        try:
            found[peer] = version(peer)
        except PackageNotFoundError:
            continue
    return found


def together(monitors: list[Callable[[Any], bool]]) -> Callable[[Any], object]:
    if len(monitors) == 1:
        return monitors[0]

    def feed(event: Any) -> list[Callable[[Any], bool]]:
        return [monitor for monitor in monitors if monitor(event)]

    return feed


def reelay_monitor(letter: str) -> Callable[[Any], bool]:
    import reelay

    update = reelay.discrete_timed_monitor(pattern=REELAY[letter], condense=False).update
    return lambda event: update(event)["value"] is False


def rtamt_monitor(letter: str) -> Callable[[Any], bool]:
    import rtamt

    spec = rtamt.StlDiscreteTimeSpecification()
    spec.declare_var("a", "float")
    spec.declare_var("b", "float")
    spec.spec = RTAMT[letter]
    spec.parse()
    update = spec.update
    return lambda event: update(*event) < 0


def reelay_input(events: Iterable[tuple[bool, bool]]) -> Iterable[Any]:
    return ({"a": a, "b": b} for a, b in events)


def rtamt_input(events: Iterable[tuple[bool, bool]]) -> Iterable[Any]:
    return ((i, [("a", float(a)), ("b", float(b))]) for i, (a, b) in enumerate(events))


MONITORS = {"reelay": reelay_monitor, "rtamt": rtamt_monitor}
INPUTS = {"reelay": reelay_input, "rtamt": rtamt_input}


if __name__ == "__main__":
    main()
