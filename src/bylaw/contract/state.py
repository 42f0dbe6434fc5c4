"""Whether an agent looks stateful: do its answers depend on what was asked before?

The first prompt is asked twice, calm. Equal answers end it. Where they differ, two more asks tell order from noise: an
agent without state gives the same spread of answers in any order, as a model that words things anew each time does. It
looks stateful where the order shows:

- counting: the same words, and numbers that rise from each answer to the next;
- growing: each answer holds the one before;
- settling: the first answer differs, and all after it are equal;
- or nothing is left in common: no two answers share much, which is more than repeat noise explains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, pairwise

from bylaw.contract.matrix import Key, Matrix
from bylaw.contract.runs import Runner
from bylaw.text.lexical import Lexicon

WARNING = (
    "No reset_endpoint configured. Contract matrix cells may share state. Results may be contaminated. "
    "Add reset_endpoint to your config for accurate isolation."
)
_ASKS = 4
_LITTLE = 0.3
"""below this similarity two answers have not much in common"""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


async def looks_stateful(matrix: Matrix, runner: Runner) -> bool:
    """Costs one run more than the matrix needs where the calm scenario is part of it, and up to three."""
    prompt = _first_prompt(matrix)
    if prompt is None:
        return False
    asks = [Key(matrix.calm.name, prompt, n) for n in range(1, _ASKS + 1)]
    for key in asks[:2]:
        await runner.make([key])  # one after the other: it is the order that is looked at
    answers = _answers(runner, asks[:2])
    if len(answers) < 2 or answers[0] == answers[1]:
        return False
    for key in asks[2:]:
        await runner.make([key])
    return order_shows(_answers(runner, asks))


def order_shows(answers: Sequence[str]) -> bool:
    """Answers to one prompt, in the order they were given."""
    if len(answers) < _ASKS or answers[0] == answers[1]:
        return False
    return _counts(answers) or _grows(answers) or _settles(answers) or _shares_nothing(answers)


def _counts(answers: Sequence[str]) -> bool:
    if len({_NUMBER.sub("0", answer) for answer in answers}) > 1:
        return False
    columns = zip(*(map(float, _NUMBER.findall(answer)) for answer in answers), strict=True)
    return any(all(before < after for before, after in pairwise(column)) for column in columns)


def _grows(answers: Sequence[str]) -> bool:
    return all(before and before in after and before != after for before, after in pairwise(answers))


def _settles(answers: Sequence[str]) -> bool:
    return len(set(answers[1:])) == 1


def _shares_nothing(answers: Sequence[str]) -> bool:
    plain = [_NUMBER.sub("0", answer) for answer in answers]
    alike = Lexicon(()).similarity
    return all(alike(left, right) < _LITTLE for left, right in combinations(plain, 2))


def _answers(runner: Runner, asks: Sequence[Key]) -> list[str]:
    found = (runner.made[key].run.answer for key in asks if key in runner.made)
    return [" ".join(answer.casefold().split()) for answer in found if answer is not None]


def _first_prompt(matrix: Matrix) -> str | None:
    if matrix.contract.prompts:
        return matrix.contract.prompts[0].text
    return next((key.prompt for key in matrix.runs()), None)
