"""What a rule demands, as data: a few operators over a few probes. Every kind is lowered into these.

| operator   | holds when                                                        |
|------------|-------------------------------------------------------------------|
| `Never`    | the probe is true of no event                                     |
| `Always`   | the probe is true of every event it can judge                     |
| `Sometime` | each probe is true of at least one event                          |
| `Before`   | every call of `second` has an earlier call of `first`             |
| `Tally`    | the measure, added up, stays within bounds                        |
| `Constant` | every observed value equals the first                             |
| `Next`     | the turn after a triggering one satisfies the probe               |
| `Temporal` | the formula is true at the first position                         |
| `Attempt`  | no attempted call matches the predicate                           |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.model.condition import Clause, Path, Predicate, argument_tests
from bylaw.model.temporal import Formula, TextHas

# probes: the data an operator looks at


class Calls(Struct, frozen=True):
    """A tool call whose name is one of these; `*`, `?` and `[…]` make a name a glob."""

    tools: tuple[str, ...]
    where: Predicate | None = None
    """the predicate on the arguments of the same call"""


class StopReasonIn(Struct, frozen=True):
    """A response that ended for one of these reasons."""

    allowed: tuple[str, ...]


class FitsSchema(Struct, frozen=True):
    """A response whose text is JSON that the schema accepts."""

    schema: Any
    formats: bool = False
    """whether `format` is asserted"""


class Grounded(Struct, frozen=True):
    """A response whose content words are, to this share, words of the retrieved chunks."""

    path: Path
    min_precision: float
    min_words: int
    """a response with fewer content words is not judged"""


class Turns(Struct, frozen=True):
    """Each response counts one."""


class Tokens(Struct, frozen=True):
    """Each response counts its tokens, input and output."""


class Cost(Struct, frozen=True):
    """Each response counts its price in US dollars, by the shipped price list."""


class Latency(Struct, frozen=True):
    """Each response counts the milliseconds it took."""


class Values(Struct, frozen=True):
    """Each call counts the number, or the numbers, at a path in its arguments."""

    calls: Calls
    path: tuple[str | None, ...]
    """keys and list indices; None is the wildcard `*`"""
    name: str
    """the path as the user wrote it"""


class AtMost(Struct, frozen=True):
    """A response whose measure is no higher than this."""

    measure: Cost | Latency
    limit: int | float


# operators


class Never(Struct, frozen=True):
    probe: Calls | TextHas
    message: str = ""
    """what is wrong with a response that has the text, in the words of the rule's author"""


class Always(Struct, frozen=True):
    probe: StopReasonIn | FitsSchema | Grounded | AtMost


class Sometime(Struct, frozen=True):
    """Each of the texts, in one response or in several."""

    probes: tuple[TextHas, ...]


class Before(Struct, frozen=True):
    first: Calls
    second: Calls
    only_if_both: bool = False
    """judge only scopes in which both occur"""
    same: tuple[tuple[str | None, ...], ...] = ()
    """paths into the arguments at which both calls have the same values"""


class Tally(Struct, frozen=True):
    measure: Calls | Turns | Tokens | Values | Cost | Latency
    at_most: int | float
    at_least: int = 0
    each_excess: bool = False
    """report every event past the bound; otherwise only the one that crosses it"""


class Constant(Struct, frozen=True):
    path: Path


class Next(Struct, frozen=True):
    trigger: tuple[Clause, ...]
    must: Calls | TextHas


class Temporal(Struct, frozen=True):
    formula: Formula
    over: Literal["events", "turns"] = "events"
    """the unit of a position"""
    words: str = ""
    """the rule as a sentence, where the user wrote no formula: messages then say this"""
    message: str = ""
    """what went wrong, in the words of the rule's author: messages then say only this"""


class Attempt(Struct, frozen=True):
    """No attempt matches the predicate; or, where `marks`, those that do are only marked."""

    when: Predicate
    marks: bool = False
    asks: bool = False
    """whether a person may have approved the call, which no recording says: then a match leaves the rule open"""


def looks_at_arguments(demand: Demand) -> Iterator[tuple[Calls, tuple[str | None, ...]]]:
    """The paths into the arguments of which calls the demand asks for. Formulas and attempts have their own."""
    match demand:
        case Before(first=first, second=second, same=same):
            yield from _paths_in(first)
            yield from _paths_in(second)
            yield from ((calls, path) for calls in (first, second) for path in same)
        case Tally(measure=Values(calls=calls, path=path)):
            yield calls, path
            yield from _paths_in(calls)
        case Never(probe=Calls() as calls) | Tally(measure=Calls() as calls) | Next(must=Calls() as calls):
            yield from _paths_in(calls)


def _paths_in(calls: Calls) -> Iterator[tuple[Calls, tuple[str | None, ...]]]:
    if calls.where is not None:
        yield from ((calls, leaf.path) for leaf in argument_tests(calls.where))


Demand: TypeAlias = Never | Always | Sometime | Before | Tally | Constant | Next | Temporal | Attempt
