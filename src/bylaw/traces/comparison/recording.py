"""One side of a comparison: traces read into sessions of turns, and the rules' verdicts on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from bylaw.engine.compile import Program
from bylaw.engine.evaluation import Evaluation
from bylaw.model.canonical import short_digest
from bylaw.model.events import Event, Request, Response, SessionEnd, SessionStart, ToolCall
from bylaw.model.ports import TraceSource
from bylaw.model.verdict import Outcome, Verdict


class Step:
    """One turn of one session."""

    def __init__(self, response: Response, position: int) -> None:
        self.response = response
        self.position = position
        """index in its session"""
        self.turn = position if response.turn is None else response.turn
        """index in its trace"""

    @property
    def text(self) -> str:
        return self.response.text or ""

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """One token per call: name and sorted argument keys."""
        return tuple(_shape(call) for call in self.response.tool_calls)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The trajectory token of each call: shape and the digest of its arguments."""
        digests = (short_digest(arguments(call)) for call in self.response.tool_calls)
        return tuple(f"{shape}#{digest}" for shape, digest in zip(self.shape, digests, strict=True))

    @cached_property
    def signature(self) -> tuple[Any, ...]:
        """Turns with equal signatures count as the same."""
        return (self.tokens, self.text, self.response.stop_reason)


def arguments(call: ToolCall) -> Any:
    return call.raw_arguments if call.arguments is None else call.arguments


def _shape(call: ToolCall) -> str:
    found = arguments(call)
    keys = ",".join(sorted(found)) if isinstance(found, dict) else type(found).__name__
    return f"{call.name}({keys})"


class Recording(Struct):
    """A session as recorded in one trace."""

    trace: str
    session: str
    task: str | None = None
    """matches sessions without shared ids"""
    steps: list[Step] = field(default_factory=list)
    complete: bool = True

    @property
    def name(self) -> str:
        return f"{self.trace} session {self.session}"


class Side(Struct):
    """All sessions of one side, in order."""

    recordings: list[Recording] = field(default_factory=list)
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)
    """(trace, verdict): what the rules found"""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """rule id → its worst outcome over the traces"""
    scope_doubts: list[str] = field(default_factory=list)
    """rules without a scope that a trace keeps and one of its sessions breaks"""
    empty: list[str] = field(default_factory=list)
    """traces without a turn"""
    notes: list[str] = field(default_factory=list)

    @property
    def turns(self) -> int:
        return sum(len(recording.steps) for recording in self.recordings)


def read_side(sources: Iterable[TraceSource], program: Program) -> Side:
    side = Side()
    for source in sources:
        _read_trace(side, source, program)
    return side


def _read_trace(side: Side, source: TraceSource, program: Program) -> None:
    evaluation = Evaluation(program)
    found: dict[str, Recording] = {}
    turns = 0
    for event in source:
        side.verdicts += [(source.name, verdict) for verdict in evaluation.step(event)]
        recording = found.get(event.origin.session)
        if recording is None:
            recording = found[event.origin.session] = Recording(source.name, event.origin.session)
        if recording.task is None:
            recording.task = _task_of(event)
        if isinstance(event, Response):
            recording.steps.append(Step(event, len(recording.steps)))
            turns += 1
        elif isinstance(event, SessionEnd):
            recording.complete = event.complete
    side.verdicts += [(source.name, verdict) for verdict in evaluation.end(complete=source.complete)]
    side.recordings += found.values()
    side.notes += [f"{source.name}: {note}" for note in source.notes]
    side.notes += [f"{source.name}: {source.skipped} bad records skipped"] if source.skipped else []
    side.notes += [] if source.complete else [f"{source.name}: the recording stopped early"]
    side.empty += [] if turns else [source.name]
    side.scope_doubts += [rule for rule in evaluation.scope_doubts() if rule not in side.scope_doubts]
    for rule, outcome in evaluation.outcomes().items():
        worst = side.outcomes.get(rule, Outcome.VACUOUS)
        side.outcomes[rule] = max(worst, outcome, key=lambda one: one.badness)


def _task_of(event: Event) -> str | None:
    """The task of a session: a task id if the format records one, else the first message of the user."""
    if isinstance(event, SessionStart) and event.metadata and event.metadata.get("task_id") is not None:
        return f"task {event.metadata['task_id']}"
    return _first_user_text(event) if isinstance(event, Request) else None


def _first_user_text(request: Request) -> str | None:
    for message in request.messages or ():
        if isinstance(message, dict) and message.get("role") == "user":
            return _text(message.get("content"))
    return None


def _text(content: Any) -> str | None:
    if isinstance(content, str):
        return content.strip() or None
    if isinstance(content, list):
        parts: Sequence[str] = [b["text"] for b in content if isinstance(b, dict) and isinstance(b.get("text"), str)]
        return "\n".join(parts).strip() or None
    return None
