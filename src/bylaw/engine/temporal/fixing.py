"""What an atom does to variables: it fixes those without a value, compares the others, or puts that off."""

from __future__ import annotations

from typing import TypeAlias

from bylaw.engine.temporal.keys import UNKNOWN_KEY
from bylaw.engine.temporal.letters import NO_VALUE, Hit, VariableTest, compare
from bylaw.engine.temporal.tables import Deferred
from bylaw.engine.temporal.truth import Sigma, Truth

Found: TypeAlias = tuple[Sigma, Truth, tuple[Deferred, ...]]
"""the variables as they are then, the truth of it, and what remains to be compared"""


def fixed_by(letter: Hit, tests: tuple[VariableTest, ...], sigma: Sigma) -> list[Found]:
    """A Hit, its variables compared where they have a value, fixed or put off where they have none."""
    truth: bool | None = letter.sure or None
    deferred: list[Deferred] = []
    for test in tests:
        found, wanted = letter.values[test.position], sigma[test.variable]
        if wanted is not None:
            one = compare(test.op, found, wanted)
        elif test.op == "=":
            one = False if found == NO_VALUE else None if found == UNKNOWN_KEY else True
            sigma = (*sigma[: test.variable], found, *sigma[test.variable + 1 :])
        else:
            one = True
            deferred.append(Deferred(test.op, test.variable, found))
        if one is False:
            return []
        if one is None:
            truth = None
    return [(sigma, truth, tuple(deferred))]
