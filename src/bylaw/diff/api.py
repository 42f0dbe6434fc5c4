"""`bylaw.diff`: the job as a Python function."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Literal

from bylaw.diff.model import Change, DiffReport
from bylaw.model.events import Response
from bylaw.rules.loader import Rules, as_rules
from bylaw.traces.inputs import Traces, as_sources


def diff(
    baseline: Traces,
    candidate: Traces,
    rules: Rules = (),
    *,
    fail_on: Literal["none", "minor", "moderate", "severe"] = "severe",
    judge: Callable[[Response], float | None] | None = None,
    prices: str | PathLike[str] | None = None,
    embeddings: bool = False,
) -> DiffReport:
    """What changed between two versions of the agent, and did it break or mend a rule?

    `judge` scores a response, more is better; None where it cannot say. `prices` is the path of a price table of your
    own. `embeddings` measures the semantic axis by sentence embeddings instead of words; needs `bylaw[embeddings]`.
    """
    from bylaw.diff.job import diff as diff_sources
    from bylaw.text.embeddings import load_embedder
    from bylaw.text.price_file import load_prices

    return diff_sources(
        as_sources(baseline),
        as_sources(candidate),
        as_rules(rules),
        fail_on=Change(fail_on),
        judge=None if judge is None else lambda step: judge(step.response),
        prices=None if prices is None else load_prices(prices),
        embedder=load_embedder() if embeddings else None,
    )
