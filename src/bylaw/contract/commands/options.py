"""The flags that `run` and `score` share, and what they make of the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.model import Contract

DEFAULT = "bylaw.yaml"
FC = TypeVar("FC", bound=Callable[..., Any])

CONFIG = click.option(
    "--config", "-c", default=DEFAULT, show_default=True, metavar="FILE", help="File that holds the contract."
)


class Flags(Struct, frozen=True, kw_only=True):
    """What was said on the command line; None and empty: what the file says."""

    config: str = DEFAULT
    min_score: float = 100.0
    seed: int | None = None
    runs: int | None = None
    scenarios: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    traces: str | None = None
    redact: bool = True
    concurrency: int | None = None
    timeout: int | None = None


_OPTIONS = (
    CONFIG,
    click.option(
        "--min-score",
        type=click.FloatRange(0, 100),
        default=100.0,
        show_default=True,
        help="Least score that passes; a critical violation fails whatever the score.",
    ),
    click.option("--seed", type=int, help="Draw faults with this seed."),
    click.option("--runs", type=click.IntRange(1, 1000), metavar="N", help="Ask each prompt N times in each scenario."),
    click.option("--scenario", "scenarios", multiple=True, metavar="NAME", help="Only this one; may be given again."),
    click.option("--invariant", "invariants", multiple=True, metavar="ID", help="Only this one; may be given again."),
    click.option("--traces", metavar="DIR", help="Write what the agent did in each run to a trace in this folder."),
    click.option(
        "--redact/--no-redact",
        default=True,
        help="Take secrets out of the report and of the traces, or not.",
        show_default=True,
    ),
    click.option("--concurrency", type=click.IntRange(1, 1000), metavar="N", help="At most N runs at once."),
    click.option("--timeout", type=click.IntRange(1), metavar="MS", help="How long the agent may take to answer."),
)


def run_options(function: FC) -> FC:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def applied(flags: Flags, contract: Contract) -> tuple[Contract, tuple[str, ...]]:
    """The contract as the flags want it, and what has to be said about that."""
    from bylaw.contract.matrix import narrowed

    _known("scenario", flags.scenarios, [one.name for one in contract.scenarios])
    _known("invariant", flags.invariants, [one.id for one in contract.invariants])
    agent = contract.agent
    agent = agent if flags.timeout is None else replace(agent, timeout_ms=flags.timeout)
    agent = agent if flags.concurrency is None else replace(agent, concurrency=flags.concurrency)
    wanted = replace(
        contract,
        agent=agent,
        seed=contract.seed if flags.seed is None else flags.seed,
        runs=contract.runs if flags.runs is None else flags.runs,
    )
    part = narrowed(wanted, scenarios=flags.scenarios, invariants=flags.invariants)
    return part, _left_out(contract, part)


def _known(what: str, wanted: Sequence[str], names: Sequence[str]) -> None:
    from bylaw.rules.words import did_you_mean

    for name in wanted:
        if name not in names:
            raise click.UsageError(f"the contract has no {what} `{name}`; {did_you_mean(name, names)}")


def _left_out(whole: Contract, part: Contract) -> tuple[str, ...]:
    if (len(part.scenarios), len(part.invariants)) == (len(whole.scenarios), len(whole.invariants)):
        return ()
    counts = (
        f"{len(part.invariants)} of {len(whole.invariants)} invariants",
        f"{len(part.scenarios)} of {len(whole.scenarios)} scenarios",
    )
    return (f"only a part of the contract was run: {', '.join(counts)}",)
