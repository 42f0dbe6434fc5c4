"""The columns of the test: one for each figure that can rise or fall."""

from __future__ import annotations

from msgspec import Struct


class Column(Struct, frozen=True, order=True):
    """One figure. `axis` is where it is reported."""

    axis: str
    what: str
    subject: str = ""
    """a tool, a stop reason, a rule, a name"""
    detail: str = ""
    """argument keys, an argument and its value or the word before its value, or another tool"""

    @property
    def direction(self) -> int:
        """1 where more is worse, -1 where less is worse, 0 where both count as a change."""
        return _DIRECTIONS.get(self.what, 0)

    @property
    def is_measure(self) -> bool:
        """Whether a session without it was not recorded, rather than zero."""
        return self.what in _MEASURES


_DIRECTIONS = {
    "errors": 1,
    "refusals": 1,
    "output tokens": 1,
    "reasoning tokens": 1,
    "latency": 1,
    "cost": 1,
    "turns": 1,
    "values from nowhere": 1,
    "numbers from nowhere": 1,
    "dates from nowhere": 1,
    "addresses from nowhere": 1,
    "names from nowhere": 1,
    "currencies from nowhere": 1,
    "no answer": 1,
    "empty turn": 1,
    "final refusal": 1,
    "violations": 1,
    "score": -1,
    "judge": -1,
}
_MEASURES = frozenset(
    {
        "output tokens",
        "reasoning tokens",
        "latency",
        "cost",
        "score",
        "judge",
        "values from nowhere",
        "numbers from nowhere",
        "dates from nowhere",
        "addresses from nowhere",
        "names from nowhere",
        "currencies from nowhere",
        "yes or no",
        "first word",
        "opposite",
        "argument opposite",
        "argument order",
    }
)
OWN_ROW = frozenset(
    {"output tokens", "reasoning tokens", "latency", "cost", "refusals", "score", "judge", "violations"}
)
"""columns that the axes or the rules show themselves"""
OF_SESSIONS = frozenset({"score", "violations"})
"""columns that are shown elsewhere and belong to whole sessions, also in a replay"""
AMOUNTS = {"output tokens": "verbosity", "latency": "latency", "cost": "cost", "reasoning tokens": "reasoning"}
"""what is added up over a session, and the axis that shows it"""
SMALL = {"output tokens": 20.0, "latency": 50.0, "cost": 0.001, "reasoning tokens": 20.0}
"""amounts below which a relative change says little"""
OF_TOOL = "\x00"
"""between a tool and its argument in the detail of an `argument order`"""
JUDGED = Column("judge", "judge")
"""the mean score of the judge"""
