"""`make score`: how well the rules that a system prompt states are read and decided, on dialogues with known answers.

SOPBench's dialogues say whether an action was taken without the checks its prompt wants before it (order), or though a
condition did not hold (constraint), and at which call first. Every figure is per domain and per tier: with all
bindings, and with only those that stand on names and words of the prompt (certain). `bank` is the domain the grammar
was made with; `library` was looked at a few times, which showed mistakes of the grammar; nothing else was seen.

A breach of a condition shows in a trace only where the agent looked and went on all the same. `constraint, seen` counts
just these; `constraint, seen or never looked up` also takes an action without the look-up for one that may break it.

Bias: the prompts list conditions under each tool, which free prose does not. A dialogue counts as found when any rule
of it is violated, also where another one than the labels have in mind. Labels come from the final state of a simulated
database, which the agent may never have looked at: such a breach cannot be seen in what was said and called.

Prompts of real products and open projects are read too: how many rules of each tier, how many of the certain readings
a person has reviewed and found right (`tests/comply/reviewed.json`), and how many of the dialogues that no prompt
forbids break a rule all the same.

    python bench/comply.py [--data FOLDER] [--domain NAME]...
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from msgspec import Struct

import bylaw
from bylaw.comply.decide import CompiledPrompt
from bylaw.comply.inputs import as_trace, merge_tools, read_tools, tools_called
from bylaw.comply.model import ComplianceResult, State, Tier
from bylaw.comply.prompt import read_prompt
from bylaw.model.events import Trace

REVIEWED = Path(__file__).parents[1] / "tests" / "comply" / "reviewed.json"
DATA = Path(__file__).parents[2] / "shared" / "data"


class Judged(Struct):
    """One dialogue: what its labels say, and what was found."""

    order: bool
    constraint: bool
    first: int | None
    """the call that the labels name first, as an index among the events"""
    result: ComplianceResult
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--domain", action="append")
    options = parser.parse_args()
    folder = options.data / "sopbench"
    if not folder.is_dir():
        print(f"no dialogues to score with: `{folder}` is not there", file=sys.stderr)
        return 1
    print(f"bylaw {version('bylaw')}, Python {platform.python_version()}, {platform.machine()}\n")
    for domain in options.domain or ("bank", "library"):
        show(domain, list(judged(folder, domain)))
    if not options.domain and (options.data / "prompts").is_dir():
        show_open_prompts(options.data)
    return 0


def judged(folder: Path, domain: str) -> Iterator[Judged]:
    """Every dialogue of a domain under the rules of its own prompt."""
    with gzip.open(folder / "prompts.json.gz") as file:
        prompts = json.load(file)
    tools = json.loads((folder / "tools.json").read_text())[domain]
    compiled: dict[str, bylaw.Compliance] = {}
    with gzip.open(folder / "events.jsonl.gz") as file:
        for row in map(json.loads, file):
            if row["domain"] != domain:
                continue
            key = row["prompt_id"]
            if key not in compiled:
                compiled[key] = bylaw.Compliance(prompts[key], tools=tools)
                compiled[key].check(row["events"])  # compiles
            yield _judge(row, compiled[key])


def _judge(row: dict[str, Any], rules: bylaw.Compliance) -> Judged:
    started = perf_counter()
    result = rules.check(row["events"])
    seconds = perf_counter() - started
    label = row["label"]
    return Judged(label["order_violated"], label["constraint_violated"], _first(row), result, seconds)


def _first(row: dict[str, Any]) -> int | None:
    """The labels count results; the call they mean is the one that the result answers."""
    numbers = [n for n in (row["first_violation"] or {}).values() if n is not None]
    if not numbers:
        return None
    calls: list[tuple[int, str]] = []
    results = -1
    for index, event in enumerate(row["events"]):
        if event["type"] == "tool_call":
            calls.append((index, event["name"]))
        elif event["type"] == "tool_result":
            results += 1
            call = next((c for c in calls if c[1] == event["name"]), None)
            if call is not None:
                calls.remove(call)
            if results == min(numbers):
                return call[0] if call else None
    return None


def show(domain: str, dialogues: list[Judged]) -> None:
    print(f"## {domain}: {len(dialogues):,} dialogues\n")
    print("| | tier | precision | recall | F1 | found | wrongly | missed |\n|---|---|--:|--:|--:|--:|--:|--:|")
    for tier in (None, Tier.CERTAIN):
        name = "all" if tier is None else tier.value
        row("any violation", name, dialogues, lambda d: d.order or d.constraint, lambda d, t=tier: _found(d, t, None))
        row("order", name, dialogues, lambda d: d.order, lambda d, t=tier: _found(d, t, "order"))
        row("constraint, seen", name, dialogues, lambda d: d.constraint, lambda d, t=tier: _found(d, t, "state"))
        what = "constraint, seen or never looked up"
        row(what, name, dialogues, lambda d: d.constraint, lambda d, t=tier: _found(d, t, None))
    row("any violation", "always fire", dialogues, lambda d: d.order or d.constraint, lambda _: True)
    located = [d for d in dialogues if d.first is not None and d.result.detected]
    right = sum(d.first == min(_indexes(d)) for d in located)
    states = [rule.state for d in dialogues for rule in d.result.extracted_rules]
    decided = [state for state in states if state is not State.UNDECIDED]
    print(f"\n- first violation at the call that the labels name: {right:,} of {len(located):,} found")
    print(f"- coverage: {len(decided) / len(states):.1%} of {len(states):,} rules decided", end="")
    print(f", {sum(s in (State.VIOLATED, State.SATISFIED) for s in states) / len(states):.1%} violated or satisfied")
    print(f"- median time for one dialogue: {statistics.median(d.seconds for d in dialogues) * 1000:.1f} ms\n")


def _found(dialogue: Judged, tier: Tier | None, aspect: str | None) -> bool:
    violations = [v for v in dialogue.result.violations if tier is None or v.tier is tier]
    if aspect is None:
        return bool(violations)
    return any((v.aspect == "order") == (aspect == "order") for v in violations)


def _indexes(dialogue: Judged) -> list[int]:
    return [v.event_index for v in dialogue.result.violations if v.event_index is not None] or [-1]


def row(
    what: str, tier: str, dialogues: list[Judged], wanted: Callable[[Judged], bool], found: Callable[[Judged], bool]
) -> None:
    pairs = [(wanted(dialogue), found(dialogue)) for dialogue in dialogues]
    hits = sum(a and b for a, b in pairs)
    wrong, missed = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
    precision, recall = hits / (hits + wrong or 1), hits / (hits + missed or 1)
    f1 = 2 * precision * recall / (precision + recall or 1)
    print(f"| {what} | {tier} | {precision:.3f} | {recall:.3f} | {f1:.3f} | {hits:,} | {wrong:,} | {missed:,} |")


# -- open prompts ------------------------------------------------------------------------------------------------------


def show_open_prompts(data: Path) -> None:
    """Every fifth prompt is kept aside: whoever changes the grammar does not look at it."""
    lines = (data / "dialogues" / "innocent.jsonl").read_text().splitlines()
    dialogues = [as_trace(json.loads(line)["messages"]) for line in lines]
    prompts = json.loads((data / "prompts" / "index.json").read_text())
    aside = prompts[4::5]
    print(f"## {len(prompts)} open prompts\n")
    print("| prompts | tier | rules | reviewed and right | innocent dialogues that break one |\n|---|---|--:|--:|--:|")
    show_tiers(
        f"{len(prompts) - len(aside)} worked with", [one for one in prompts if one not in aside], data, dialogues
    )
    show_tiers(f"{len(aside)} kept aside", aside, data, dialogues)


def show_tiers(name: str, prompts: list[dict[str, Any]], data: Path, dialogues: list[Trace]) -> None:
    reviewed = json.loads(REVIEWED.read_text()) if REVIEWED.is_file() else {}
    called = merge_tools(tools_called(one.events) for one in dialogues)
    tiers: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    right = 0
    for entry in prompts:
        text = (data / "prompts" / entry["file"]).read_text()
        tools = read_tools(entry.get("tools") or entry.get("tool_names") or [])
        rules = read_prompt(text, tools=tools or called)
        tiers.update("undecided" if not rule.items else str(rule.tier) for rule in rules.rules)
        lines_reviewed = [one["line"] for one in reviewed.get(entry["file"], ())]
        certain = (rule for rule in rules.rules if rule.items and rule.tier is Tier.CERTAIN)
        right += sum(text.count("\n", 0, rule.start) + 1 in lines_reviewed for rule in certain)
        compiled = CompiledPrompt(rules)
        for dialogue in dialogues:
            broken.update({str(one.tier) for one in compiled.check(dialogue).violations})
    every = f"{len(prompts) * len(dialogues):,}"
    print(f"| {name} | certain | {tiers['certain']:,} | {right:,} | {broken['certain']:,} of {every} |")
    print(f"| | likely | {tiers['likely']:,} | | {broken['likely']:,} of {every} |")
    print(f"| | undecided | {tiers['undecided']:,} | | |")


if __name__ == "__main__":
    sys.exit(main())
