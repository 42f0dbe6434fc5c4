"""One side of a comparison: traces read into sessions of turns, and the rules' verdicts on them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from bylaw.engine.compile import Program
from bylaw.engine.evaluation import Evaluation
from bylaw.errors import InputError
from bylaw.model.canonical import short_digest
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Annotation, Event, Request, Response, SessionEnd, SessionStart, ToolCall, ToolResult
from bylaw.model.messages import MessageSlice
from bylaw.model.ports import TraceSource
from bylaw.model.verdict import Outcome, Verdict
from bylaw.text.decisions import decisions, is_prose
from bylaw.text.figure_places import as_written, exchanged

_MOST_ANSWERS = 10
"""texts at the end of a session that are its answer"""
MOST_SCORED = 1e12
"""a larger score is a mistake in the recording"""
_OWN_ROLES = ("assistant", "model")
_MOST_CONTEXT = 1_000_000
"""characters of a session that are searched for the values an agent uses"""


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
        found = [(call.name, arguments(call)) for call in self.response.tool_calls]
        return tuple(
            f"{name}({','.join(sorted(given)) if isinstance(given, dict) else type(given).__name__})"
            for name, given in found
        )

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The trajectory token of each call: shape and the digest of its arguments. A text for people counts by what it
        decides, as other words alone are no other call.
        """
        digests = (short_digest(_decisions_in(arguments(call))) for call in self.response.tool_calls)
        return tuple(f"{shape}#{digest}" for shape, digest in zip(self.shape, digests, strict=True))

    @property
    def signature(self) -> tuple[Any, ...]:
        """Turns with equal signatures count as the same."""
        return (self.tokens, self.text, self.response.stop_reason)


def arguments(call: ToolCall) -> Any:
    return call.raw_arguments if call.arguments is None else call.arguments


def _decisions_in(value: Any, depth: int = 0) -> Any:
    """Arguments with what their prose decides in its place."""
    if isinstance(value, dict) and depth < _MOST_NESTED:
        return {key: _decisions_in(child, depth + 1) for key, child in value.items()}
    if isinstance(value, list) and depth < _MOST_NESTED:
        return [_decisions_in(child, depth + 1) for child in value]
    if isinstance(value, str) and is_prose(value):
        found = decisions(value)
        # without opposites: one that only one message uses decides nothing, and equality cannot say so
        return ["prose", sorted(map(list, found.facts)), found.is_negated, found.says]
    return value


_MOST_NESTED = 20


def exchanged_in_messages(left: ToolCall, right: ToolCall) -> list[str]:
    """The figures that stand in the places of each other in the prose of two calls that decide the same."""
    if left.arguments == right.arguments:
        return []
    both = zip(_prose_of(arguments(left)), _prose_of(arguments(right)), strict=False)
    return sorted({one for a, b in both for one in as_written(exchanged(decisions(a).places, decisions(b).places), a)})


def _prose_of(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, dict | list) and depth < _MOST_NESTED:
        for _, child in sorted(value.items()) if isinstance(value, dict) else enumerate(value):
            yield from _prose_of(child, depth + 1)
    elif isinstance(value, str) and is_prose(value):
        yield value


class Recording(Struct, dict=True, eq=False):
    """A session as recorded in one trace."""

    trace: str
    session: str
    task: str | None = None
    """the task id, where the format records one"""
    steps: list[Step] = field(default_factory=list)
    complete: bool = True
    errors: Counter[str] = field(default_factory=Counter)
    """results in error, by tool"""
    score: float | None = None
    """a recorded score of the session: a reward, an evaluation, feedback; NaN: one that cannot be compared"""
    unread_scores: int = 0
    """scores that are no number, share or grade"""
    first_request: Request | None = None

    @property
    def name(self) -> str:
        return f"{self.trace} session {self.session}"

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """What the agent said after the last call, as a decision is often followed by a courtesy; else its last text.

        Empty where it said nothing.
        """
        found: list[str] = []
        for step in reversed(self.steps):
            if found and (step.response.tool_calls or len(found) == _MOST_ANSWERS):
                break
            if step.text.strip():
                found.append(step.text)
        return tuple(reversed(found))

    @cached_property
    def openings(self) -> tuple[str | None, str | None]:
        """What began the session: the system prompt and the user's first message, and the latter alone."""
        messages = _texts(self.first_request)
        first = next((text for role, text in messages if role == "user" and text), None)
        return (None, None) if first is None else (short_digest([_system(messages), first]), first)

    @cached_property
    def system_prompt(self) -> str:
        return "\n".join(_system(_texts(self.first_request)))

    @property
    def last_request(self) -> Request | None:
        return next((s.response.request for s in reversed(self.steps) if s.response.request is not None), None)

    @cached_property
    def begins_again(self) -> bool:
        """Whether it holds several runs that were recorded with one id: requests repeat the conversation, and the one
        with which the last request's conversation began is word for word the session's first.
        """
        answers = sum(role in _OWN_ROLES for role, _ in _texts(self.last_request))
        at = len(self.steps) - 1 - answers
        return answers > 0 and at > 0 and _texts(self.steps[at].response.request) == _texts(self.first_request)

    @cached_property
    def user_messages(self) -> tuple[str, ...]:
        """All that the user said, as the last request repeats it."""
        return tuple(text for role, text in _texts(self.last_request) if role == "user" and text)

    @cached_property
    def context(self) -> Context:
        """The last request repeats the session: its last message of the assistant is the last step but one."""
        messages = (self.last_request.messages if self.last_request else None) or []
        found = _read_input(messages)
        own = [at for at, one in enumerate(messages) if isinstance(one, dict) and one.get("role") in _OWN_ROLES]
        ends = [found.ends[at] for at in (*own, len(messages))][-len(self.steps) :]
        ends += ends[-1:] * (len(self.steps) - len(ends))
        return Context(found.text, ends, found.start)


class Context(Struct, frozen=True):
    """The input of the agent, in lower case."""

    text: str
    ends: list[int]
    """how much of it was there before each step"""
    start: int
    """where the system prompt ends"""


def turn_contexts(steps: Sequence[Step]) -> list[Context]:
    """The context of each step, by its own request. Requests that share a list of messages share the text too."""
    requests = [step.response.request for step in steps]
    empty: MessageSlice = ([], 0, 0)
    slices = [(None if one is None else one.message_slice) or empty for one in requests]
    longest: dict[tuple[int, int], int] = {}
    for messages, start, end in slices:
        key = (id(messages), start)
        longest[key] = max(longest.get(key, 0), end)
    inputs: dict[tuple[int, int], Context] = {}
    found = []
    for messages, start, end in slices:
        key = (id(messages), start)
        whole = inputs.get(key)
        if whole is None:
            whole = inputs[key] = _read_input(messages[start : longest[key]])
        length = whole.ends[end - start]
        found.append(Context(whole.text, [length], min(whole.start, length)))
    return found


def _read_input(messages: Sequence[Any]) -> Context:
    """The input of the agent in these messages, with its length before each of them and at the end."""
    parts: list[str] = []
    ends: list[int] = []
    length = start = 0
    for message in messages:
        ends.append(length)
        role, text = _role_and_text(message)
        if role is not None and role not in _OWN_ROLES and length < _MOST_CONTEXT:
            parts.append(text.lower())
            start += len(parts[-1]) + 1 if role in ("system", "developer") and start == length else 0
            length += len(parts[-1]) + 1
    return Context("\n".join(parts), [*ends, length], start)


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
    traces: int = 0
    """how many were read"""

    @property
    def turns(self) -> int:
        return sum(len(recording.steps) for recording in self.recordings)


def read_side(sources: Iterable[TraceSource], program: Program, unread: list[Diagnostic] | None = None) -> Side:
    """`unread` gets the reasons why a trace cannot be read, and the trace is left out; without it, InputError."""
    side = Side()
    for source in sources:
        try:
            _read_trace(side, source, program)
        except InputError as problem:
            if unread is None:
                raise
            unread += problem.diagnostics
    return side


def _read_trace(side: Side, source: TraceSource, program: Program) -> None:
    evaluation = Evaluation(program)
    found: dict[str, Recording] = {}
    verdicts: list[Verdict] = []
    turns = 0
    for event in source:
        verdicts += evaluation.step(event)
        recording = found.get(event.origin.session)
        if recording is None:
            recording = found[event.origin.session] = Recording(source.name, event.origin.session)
        _add(recording, event)
        turns += isinstance(event, Response)
    verdicts += evaluation.end(complete=source.complete)
    side.verdicts += [(source.name, verdict) for verdict in verdicts]
    side.traces += 1
    side.recordings += found.values()
    side.notes += [f"{source.name}: {note}" for note in source.notes]
    side.notes += [f"{source.name}: {source.skipped} bad records skipped"] if source.skipped else []
    side.notes += [] if source.complete else [f"{source.name}: the recording stopped early"]
    side.empty += [] if turns else [source.name]
    side.scope_doubts += [rule for rule in evaluation.scope_doubts() if rule not in side.scope_doubts]
    for rule, outcome in evaluation.outcomes().items():
        worst = side.outcomes.get(rule, Outcome.VACUOUS)
        side.outcomes[rule] = max(worst, outcome, key=lambda one: one.badness)


def _add(recording: Recording, event: Event) -> None:
    if isinstance(event, Response):
        recording.steps.append(Step(event, len(recording.steps)))
    elif isinstance(event, Request):
        recording.first_request = recording.first_request or event
    elif isinstance(event, ToolResult):
        if event.is_error:
            recording.errors[event.name or (event.call.name if event.call else "")] += 1
    elif isinstance(event, SessionStart):
        metadata = event.metadata or {}
        if metadata.get("task_id") is not None:
            recording.task = f"task {metadata['task_id']}"
        for key in ("reward", "score", "scores"):
            recording.score = as_score(metadata.get(key)) if recording.score is None else recording.score
    elif isinstance(event, Annotation) and event.label.lower() in ("score", "reward", "evaluation", "feedback"):
        found = as_score(event.data)
        recording.score = recording.score if found is None else found
        recording.unread_scores += found is None
    elif isinstance(event, SessionEnd):
        recording.complete = event.complete


_GRADES = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "correct": 1.0, "partial": 0.5, "incorrect": 0.0}
_GRADES |= {"pass": 1.0, "passed": 1.0, "fail": 0.0, "failed": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
_NUMBER = re.compile(r"([+-]?(?:\d{1,12}(?:\.\d{0,12})?|\.\d{1,12}))\s?(%?)")


def as_score(data: Any) -> float | None:
    """A recorded score as a number: a number, a grade, or the mean of the scores in a mapping. NaN where a number is
    too large to be a score.
    """
    if isinstance(data, bool | int | float):
        return float(data) if abs(data) <= MOST_SCORED else math.nan
    if isinstance(data, str):
        written = _NUMBER.fullmatch(data.strip())
        if written is None:
            return _GRADES.get(data.strip().lower())
        return as_score(float(written[1]) / (100 if written[2] else 1))
    if isinstance(data, dict):
        for key in ("value", "score", "reward"):
            if data.get(key) is not None:
                return as_score(data[key])
        known = [score for value in data.values() if (score := as_score(value)) is not None]
        return math.fsum(known) / len(known) if known else None
    return None


def _texts(request: Request | None) -> list[tuple[str, str]]:
    """The messages of a request: role and text."""
    found = map(_role_and_text, (request.messages if request else None) or ())
    return [(role, text) for role, text in found if role is not None]


def _role_and_text(message: Any) -> tuple[str | None, str]:
    if not isinstance(message, dict):
        return None, ""
    return str(message.get("role")), _text(message.get("content", message.get("parts")))


def _system(messages: list[tuple[str, str]]) -> list[str]:
    return [text for role, text in messages if role in ("system", "developer")]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        return "\n".join(filter(None, (_text(content.get(key)) for key in ("text", "content", "output"))))
    return ""
