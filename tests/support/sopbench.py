"""SOPBench's bank as traffic for backtests: dialogues with labels for their violations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

import bylaw
from bylaw.model.events import Trace
from bylaw.traces import read_trace
from tests.corpus.test_guard import Bank, Dialogue, as_value, replayed


def halves(bank: Bank) -> tuple[list[Dialogue], list[Dialogue]]:
    """The dialogues of every other model, and those of the rest."""
    models = sorted({model_of(dialogue) for dialogue in bank.dialogues})
    first = set(models[::2])
    return (
        [dialogue for dialogue in bank.dialogues if model_of(dialogue) in first],
        [dialogue for dialogue in bank.dialogues if model_of(dialogue) not in first],
    )


def model_of(dialogue: Dialogue) -> str:
    """`bank/ast_MODEL-mode_…/0/0`"""
    return dialogue.id.split("/")[1].removeprefix("ast_").partition("-mode_")[0]


def as_trace(dialogues: Iterable[Dialogue]) -> Trace:
    """Results in Python's notation are read as values."""
    stream = read_trace([_as_events(dialogue) for dialogue in dialogues], name="bank")
    return Trace(name="bank", events=tuple(stream), complete=stream.complete)


def _as_events(dialogue: Dialogue) -> dict[str, Any]:
    events = [
        {**event, "content": as_value(event["content"])} if event["type"] == "tool_result" else event
        for event in dialogue.events
    ]
    return {"id": dialogue.id, "events": events}


class Score(Struct):
    """Dialogues: any call stopped against any violation. Calls: stops up to the first violation, at it or before it.

    Calls after the first violation have no label.
    """

    violating: int = 0
    found: int = 0
    clean: int = 0
    false: int = 0
    first_breaches: int = 0
    stopped_at: int = 0
    stopped_wrongly: int = 0
    clean_calls: int = 0
    """calls before any breach"""

    @property
    def precision(self) -> float:
        return self.found / max(1, self.found + self.false)

    @property
    def recall(self) -> float:
        return self.found / max(1, self.violating)

    @property
    def call_precision(self) -> float:
        return self.stopped_at / max(1, self.stopped_at + self.stopped_wrongly)

    @property
    def call_recall(self) -> float:
        return self.stopped_at / max(1, self.first_breaches)

    def __str__(self) -> str:
        return (
            f"dialogues: precision {self.precision:.1%}, recall {self.recall:.1%}, "
            f"{self.false / max(1, self.clean):.1%} of {self.clean:,} clean ones stopped; "
            f"calls: precision {self.call_precision:.1%}, recall {self.call_recall:.1%}, "
            f"{self.stopped_wrongly / max(1, self.clean_calls):.2%} of {self.clean_calls:,} clean ones stopped"
        )


def score(rules: Sequence[Any] | dict[str, Any], dialogues: Iterable[Dialogue]) -> Score:
    guard, total = bylaw.Guard(rules, shadow=True), Score()
    for dialogue in dialogues:
        replay = replayed(dialogue, guard)
        guard.end_session(dialogue.id)
        total.clean += dialogue.is_clean
        total.violating += not dialogue.is_clean
        total.found += bool(replay.broken) and not dialogue.is_clean
        total.false += bool(replay.broken) and dialogue.is_clean
        breaches = [call for call in dialogue.first_violation.values() if call is not None]
        if not breaches and not dialogue.is_clean:
            continue  # the label does not say where
        first = min(breaches, default=replay.calls)
        total.first_breaches += bool(breaches)
        total.stopped_at += first in replay.broken
        total.stopped_wrongly += sum(call < first for call in replay.broken)
        total.clean_calls += first
    return total
