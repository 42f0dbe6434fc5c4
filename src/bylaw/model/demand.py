"""What a rule demands, as data: a few operators over a few probes. Every kind is lowered into these.

| operator   | holds when                                                        |
|------------|-------------------------------------------------------------------|
| `Never`    | the probe is true of no event                                     |
| `Always`   | the probe is true of every event it can judge                     |
| `Sometime` | the probe is true of at least one event                           |
| `Before`   | every call of `second` has an earlier call of `first`             |
| `Tally`    | the measure, added up, stays within bounds                        |
| `Constant` | every observed value equals the first                             |
| `Next`     | the turn after a triggering one satisfies the probe               |
| `Temporal` | the formula is true at the first position                         |
| `Attempt`  | no attempted call matches the predicate                           |
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.model.condition import Condition, Path
from bylaw.model.predicate import Predicate
from bylaw.model.temporal import Formula, TextHas

# probes: what an operator looks at


class Calls(Struct, frozen=True):
    """A tool call whose name is one of these; `*`, `?` and `[…]` make a name a glob."""

    tools: tuple[str, ...]


class StopReasonIn(Struct, frozen=True):
    """A response that ended for one of these reasons."""

    allowed: tuple[str, ...]


class FitsSchema(Struct, frozen=True):
    """A response whose text is JSON that the schema accepts."""

    schema: Any


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


# operators


class Never(Struct, frozen=True):
    probe: Calls | TextHas


class Always(Struct, frozen=True):
    probe: StopReasonIn | FitsSchema | Grounded


class Sometime(Struct, frozen=True):
    probe: TextHas


class Before(Struct, frozen=True):
    first: Calls
    second: Calls
    only_if_both: bool = False
    """judge only scopes in which both occur"""


class Tally(Struct, frozen=True):
    measure: Calls | Turns | Tokens
    at_most: int
    at_least: int = 0
    each_excess: bool = False
    """report every event past the bound; otherwise only the one that crosses it"""


class Constant(Struct, frozen=True):
    path: Path


class Next(Struct, frozen=True):
    trigger: tuple[Condition, ...]
    must: Calls | TextHas


class Temporal(Struct, frozen=True):
    formula: Formula
    over: Literal["events", "turns"] = "events"
    """what a position is"""
    words: str = ""
    """the rule as a sentence, where the user wrote no formula: messages then say this"""


class Attempt(Struct, frozen=True):
    """No attempt matches the predicate; or, where `marks`, those that do are only marked."""

    when: Predicate
    marks: bool = False


Demand: TypeAlias = Never | Always | Sometime | Before | Tally | Constant | Next | Temporal | Attempt

__all__ = [
    "Always",
    "Attempt",
    "Before",
    "Calls",
    "Constant",
    "Demand",
    "FitsSchema",
    "Grounded",
    "Never",
    "Next",
    "Sometime",
    "StopReasonIn",
    "Tally",
    "Temporal",
    "TextHas",
    "Tokens",
    "Turns",
]
