"""`make score`, second part: how often the gate of `bylaw diff` trips on noise, and how often it sees a change.

Simulated agents, and real ones from `../shared/data` where that folder is there: τ-airline (gpt-4o, four trials of each
task) and SOPBench (bank and library; runs of one model in several modes, and of several models). For noise, the runs of
a task are dealt to the sides at random. Beside it: McNemar's test on exact match, which needs two baseline recordings.
Every line draws with the seeds 0, 1, 2, … and prints how many. Bias: changes of real runs are made by us, each in one
way; the real change of a model is not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bylaw.rules import load_rules
from tests.diff.null import NOISES, coverage, distance_from_uniform, family_alarms, p_values
from tests.diff.simulate import DESIGNS, MUTATIONS, Mutation, Session, Sides, compare, mcnemar, sides

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
RULES = load_rules(
    [
        {"id": "verify-first", "kind": "must_call_before", "params": {"first": "verify", "then": "pay"}},
        {"id": "no-close", "kind": "no_call", "params": {"tool": "close"}, "scope": "session"},
        {"id": "one-look-up", "kind": "max_calls", "params": {"tool": "look_up", "n": 1}, "scope": "session"},
    ]
).rules
Draw = Callable[[int], Sides]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--draws",
        type=int,
        default=12,
        help="comparisons per line; of few tasks three times as many, of changes a third",
    )
    parser.add_argument("--simulations", type=int, default=500, help="of the statistics alone; of intervals four times")
    parser.add_argument("--only", choices=("statistics", "simulated", "airline", "sopbench"))
    options = parser.parse_args()
    if options.only in (None, "statistics"):
        statistics(options.simulations)
    if options.only == "statistics":
        return
    print(f"{'':44} {'gate':>6} {'McNemar':>8} {'s/diff':>7}   share of comparisons that fail")
    if options.only in (None, "simulated"):
        simulated(options.draws)
    data = DATA
    for name, score in (("airline", airline), ("sopbench", sopbench)):
        if options.only in (None, name):
            if data.is_dir():
                score(data, options.draws)
            else:
                print(f"{name}: not measured, ../shared/data is absent")


def statistics(draws: int) -> None:
    """The tests and intervals alone, without a change."""
    limit = 1.36 / draws**0.5
    print(
        f"p-values without a change, {draws} simulations: distance from uniform, at most {limit:.3f} in 95 % of cases"
    )
    for design in ("1 v 1", "2 v 1", "2 v 2", "3 v 3"):
        found = [distance_from_uniform(p_values(draws, *_trials(design), columns=columns)) for columns in (1, 5)]
        print(f"  {design:42} {found[0]:6.3f} with one figure, {found[1]:.3f} the least of five", flush=True)
    print(f"figures and rules together, {draws} simulations: share with a false alarm")
    for design in ("1 v 1", "2 v 1", "2 v 2", "1 v 5"):
        print(f"  {design:42} {family_alarms(draws, *_trials(design)):6.3f}", flush=True)
    print(f"95 % intervals, {4 * draws} simulations, turns and sessions correlated: share that covers")
    for noise in NOISES:
        for tasks in (10, 20, 40, 80):
            found = [coverage(4 * draws, tasks, noise=noise, trials=trials)[0] for trials in (1, 3)]
            label = f"{noise}, {tasks} tasks"
            print(f"  {label:42} {found[0]:6.3f} with one trial, {found[1]:.3f} with three", flush=True)
    print(f"the same, {2 * draws} simulations, the candidate slower: share that covers the mean over all tasks")
    for noise in NOISES:
        for tasks in (10, 20, 40):
            for factor in (1.2, 1.5):
                of_all, of_these = coverage(2 * draws, tasks, noise=noise, factor=factor)
                label = f"{noise}, {tasks} tasks, {factor - 1:.0%} slower"
                print(f"  {label:42} {of_all:6.3f}, over these tasks {of_these:.3f}", flush=True)


def _trials(design: str) -> tuple[int, int]:
    before, after = design.split(" v ")
    return int(before), int(after)


def line(name: str, draws: int, draw: Draw, *, rules: Any = (), baseline_twice: bool = True) -> None:
    started = time.process_time()
    tripped = found = 0
    for seed in range(draws):
        both = draw(seed)
        tripped += compare(both, rules).tripped
        found += mcnemar(both) <= 0.05
    spent = (time.process_time() - started) / draws
    other = f"{found / draws:8.2f}" if baseline_twice else f"{'–':>8}"
    print(f"{name:44} {tripped / draws:6.2f} {other} {spent:7.2f}   of {draws}", flush=True)


def simulated(draws: int) -> None:
    print("simulated agents, nothing changed")
    for design in DESIGNS:
        for tasks in (10, 20, 40, 80):
            repeats = design != "1 v 1"
            line(
                f"  {design}, {tasks} tasks",
                3 * draws if tasks <= 20 else draws,
                partial(sides, tasks=tasks, design=design),
                baseline_twice=repeats,
            )
        line(
            f"  {design}, 40 tasks, three rules",
            draws,
            partial(sides, design=design),
            rules=RULES,
            baseline_twice=design != "1 v 1",
        )
    for design in ("1 v 3", "1 v 5", "2 v 8"):
        line(
            f"  {design}, 10 tasks, three rules",
            draws,
            partial(sides, tasks=10, design=design),
            rules=RULES,
        )
    for design in ("2 v 7", "5 v 5", "1 v 1"):
        line(f"  one task, {design}", 3 * draws, partial(sides, tasks=1, design=design))
    print("simulated agents, 40 tasks, a change in a share of the sessions")
    for name, mutation in MUTATIONS.items():
        for design in DESIGNS:
            for share in (0.1, 0.25, 0.5, 1.0) if design in ("1 v 1", "2 v 1") else (0.5,):
                line(
                    f"  {name}, {design}, {share:.0%}",
                    _few(draws),
                    partial(sides, design=design, mutation=mutation, share=share),
                    baseline_twice=design != "1 v 1",
                )


def _few(draws: int) -> int:
    """Of changes, which are seen nearly always or nearly never."""
    return max(4, draws // 3)


# -- real runs --------------------------------------------------------------------------------------------------------

Tasks = dict[str, list[Session]]
"""the runs of each task"""


def airline(data: Path, draws: int) -> None:
    runs: Tasks = {}
    with gzip.open(data / "tau-airline" / "gpt-4o-airline.json.gz") as file:
        for number, one in enumerate(json.load(file)):
            runs.setdefault(str(one["task_id"]), []).append(_of_messages(f"r{number}", one["traj"]))
    _real("τ-airline", runs, draws, (10, 40))


def _of_messages(name: str, messages: list[dict[str, Any]]) -> Session:
    turns: Session = []
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        calls = [
            {"name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
            for call in message.get("tool_calls") or ()
        ]
        turns.append(_real_turn(name, messages[:place], calls, message.get("content") or ""))
    return turns


def sopbench(data: Path, draws: int) -> None:
    models: dict[str, Tasks] = {}
    with gzip.open(data / "sopbench" / "events.jsonl.gz") as file:
        for number, text in enumerate(file):
            one = json.loads(text)
            task = "/".join((one["domain"], *one["id"].split("/")[2:]))
            models.setdefault(one["model"], {}).setdefault(task, []).append(_of_events(f"r{number}", one["events"]))
    modes = {name: {t: r for t, r in tasks.items() if len(r) >= 3} for name, tasks in models.items()}
    for name in sorted(name for name, tasks in modes.items() if len(tasks) >= 80)[:2]:
        _real(f"SOPBench {name}", modes[name], draws, (10, 40))
    pairs = [("gpt-4o", "gpt-4o-mini"), ("claude-3-5-sonnet-20241022", "gpt-4o")]
    for old, new in pairs:
        shared = sorted(set(modes[old]) & set(models[new]))
        line(
            f"  {old} → {new}, 40 tasks, 2 v 1",
            _few(draws),
            partial(_models, models=models, old=old, new=new, shared=shared),
        )


def _of_events(name: str, events: list[dict[str, Any]]) -> Session:
    turns: Session = []
    said: list[dict[str, Any]] = []
    for event in events:
        match event["type"]:
            case "user_message":
                said.append({"role": "user", "content": event["content"]})
            case "tool_result":
                said.append({"role": "tool", "content": str(event["content"])})
            case "tool_call":
                turns.append(_real_turn(name, list(said), [{"name": event["name"], "args": event["args"]}], ""))
                said.append({"role": "assistant", "content": ""})
            case "agent_message":
                turns.append(_real_turn(name, list(said), [], event["content"]))
                said.append({"role": "assistant", "content": event["content"]})
    return turns


def _real_turn(name: str, before: list[Any], calls: list[Any], text: str) -> dict[str, Any]:
    return {"session": name, "request": {"messages": before}, "calls": calls, "text": text}


def _real(name: str, runs: Tasks, draws: int, sizes: tuple[int, ...]) -> None:
    print(f"{name}, nothing changed")
    for design in DESIGNS:
        for tasks in sizes:
            line(
                f"  {design}, {tasks} tasks",
                draws,
                partial(_deal, runs=runs, design=design, tasks=tasks),
                baseline_twice=design != "1 v 1",
            )
    print(f"{name}, 40 tasks, a change in half of the sessions")
    for kind, mutation in real_mutations(runs).items():
        for design in ("1 v 1", "2 v 1"):
            line(
                f"  {kind}, {design}",
                _few(draws),
                partial(_deal, runs=runs, design=design, tasks=40, mutation=mutation),
                baseline_twice=design != "1 v 1",
            )


def _deal(seed: int, runs: Tasks, design: str, tasks: int, mutation: Mutation | None = None) -> Sides:
    """Runs of each task on both sides, at random."""
    rng = random.Random(seed)
    both: Sides = ([], [])
    for number, task in enumerate(rng.sample(sorted(runs), min(tasks, len(runs)))):
        before, after = DESIGNS[design](number)
        before, after = (before, after) if before + after <= len(runs[task]) else (1, 1)
        chosen = [_named(run, f"{task}") for run in rng.sample(runs[task], before + after)]
        both[0].append(chosen[:before])
        changed = [mutation(run, rng) if mutation and rng.random() < 0.5 else run for run in chosen[before:]]
        both[1].append([run or whole for run, whole in zip(changed, chosen[before:], strict=True)])
    return both


def _named(run: Session, task: str) -> Session:
    """The run under a name of its own, opened by the task's name, so that runs of a task are paired."""
    opening = {"role": "user", "content": f"this is the task number {task}"}
    return [{**turn, "request": {"messages": [opening, *turn["request"]["messages"]]}} for turn in run]


def _models(seed: int, models: dict[str, Tasks], old: str, new: str, shared: list[str]) -> Sides:
    rng = random.Random(seed)
    both: Sides = ([], [])
    for task in rng.sample(shared, min(40, len(shared))):
        both[0].append([_named(run, task) for run in rng.sample(models[old][task], 2)])
        both[1].append([_named(rng.choice(models[new][task]), task)])
    return both


def real_mutations(runs: Tasks) -> dict[str, Mutation]:
    """Changes of the tool that most sessions call with arguments, and of the last answer."""
    called = ({c["name"] for t in run for c in t["calls"] if c["args"]} for some in runs.values() for run in some)
    used = Counter(name for names in called for name in names)
    tool = used.most_common(1)[0][0]

    def with_calls(run: Session, change: Callable[[Any], Any]) -> Session:
        return [{**turn, "calls": [c for call in turn["calls"] if (c := change(call))]} for turn in run]

    def drop(run: Session, rng: random.Random) -> Session:
        return with_calls(run, lambda call: None if call["name"] == tool else call)

    def argument(run: Session, rng: random.Random) -> Session:
        def change(call: Any) -> Any:
            first = next(iter(call["args"]), None)
            return {**call, "args": {**call["args"], first: "bob"}} if call["name"] == tool and first else call

        return with_calls(run, change)

    def swap(run: Session, rng: random.Random) -> Session:
        return with_calls(run, lambda call: {**call, "name": "other_tool"} if call["name"] == tool else call)

    def answered(text: Callable[[str, random.Random], str]) -> Mutation:
        def change(run: Session, rng: random.Random) -> Session:
            last = max((i for i, turn in enumerate(run) if turn["text"].strip()), default=len(run) - 1)
            return [{**t, "text": text(t["text"], rng)} if i == last else t for i, t in enumerate(run)]

        return change

    return {
        "drop": drop,
        "argument": argument,
        "swap": swap,
        "refusal": answered(lambda text, rng: "I'm sorry, but I can't help with that."),
        "number": answered(lambda text, rng: f"{text} The total is {rng.randint(10_000, 99_999)}."),
        "negation": answered(lambda text, rng: f"No, that is not possible. {text}"),
        "paraphrase": answered(lambda text, rng: " ".join(text.lower().split()[::-1])),
    }


if __name__ == "__main__":
    main()
