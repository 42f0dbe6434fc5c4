"""`make bench`, last part: what a recording adds to a call of a model, and how fast texts are searched for secrets.

The calls go through httpx to a transport that answers at once, in the same process, so that all that is measured is the
client and what listens to it. A conversation of so many messages is asked over and over, each time with one message
more: what a request repeats was searched before. Figures are microseconds of processor time a call, and the median of
five rounds.

Bias: a real model takes a second or more, beside which none of this is seen. Messages are short prose with some
figures in it; base64 and tables of numbers are searched more slowly.

    .venv/bin/python bench/record.py --calls 200
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import httpx

import bylaw
from bylaw.text.redaction.redactor import recording_redactor, redacted

TEXT = "The customer asks where order 4711 is; it was sent on Monday, 2024-05-01, from Bern to 17 Lake Road. " * 10
MESSAGE = {"role": "assistant", "content": TEXT}
REPLY = json.dumps({"model": "m", "choices": [{"message": MESSAGE, "finish_reason": "stop"}]}).encode()
ROUNDS = 5
Recorder = Callable[[Path], AbstractContextManager[Any]]
WAYS: dict[str, Recorder] = {
    "not recorded": lambda path: nullcontext(),
    "recorded, not redacted": lambda path: bylaw.record(path, redact=False),
    "recorded": bylaw.record,
    "recorded, durable": lambda path: bylaw.record(path, durable=True),
}


def microseconds(way: Recorder, messages: int, calls: int) -> float:
    asked: list[dict[str, Any]] = [{"role": "user", "content": f"{number} {TEXT}"} for number in range(messages)]
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=REPLY))
    with (
        tempfile.TemporaryDirectory() as folder,
        httpx.Client(transport=transport) as client,
        way(Path(folder) / "run.jsonl"),
    ):
        client.post("http://model/v1/chat/completions", json={"messages": asked})
        began = process_time()
        for number in range(calls):
            asked.append({"role": "user", "content": f"more {number} {TEXT}"})
            client.post("http://model/v1/chat/completions", json={"messages": asked})
        return (process_time() - began) / calls * 1e6


def megabytes(search: Callable[[Any], Any], texts: list[str]) -> float:
    began = process_time()
    search(texts)
    return sum(map(len, texts)) / (process_time() - began) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    calls = parser.parse_args().calls
    print(f"Python {platform.python_version()} on {platform.machine()}, {calls} calls\n")
    print(f"{'µs a call':24} {'1 message':>12} {'50 messages':>12}")
    for name, way in WAYS.items():
        figures = [median(microseconds(way, size, calls) for _ in range(ROUNDS)) for size in (1, 50)]
        print(f"{name:24} {figures[0]:12,.0f} {figures[1]:12,.0f}")
    texts = [f"{number} {TEXT}" for number in range(500)]
    known = recording_redactor()
    known(texts)
    new, seen = megabytes(recording_redactor(), texts), megabytes(known, texts)
    print(f"\nMB/s searched: new texts {new:.1f}, seen before {seen:.0f},")
    print(f"secrets alone, as the guard does {megabytes(redacted, texts):.0f}")


if __name__ == "__main__":
    main()
