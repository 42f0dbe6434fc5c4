"""The result of a contract: a matrix of cells, the score, verdict and exit code that follow, and what is redacted."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.model import Invariant, Weight
from bylaw.engine.monitor import ref
from bylaw.model.events import Deferred, Event, Trace
from bylaw.model.verdict import EventRef
from bylaw.text.redaction.redactor import Redaction, Redactor


class CellOutcome(StrEnum):
    OK = "ok"
    VIOLATED = "violated"
    NOT_APPLICABLE = "not_applicable"
    """the invariant's `when` excludes this scenario"""
    VACUOUS = "vacuous"
    """a fault of the scenario never fired, or the rule was never triggered: nothing was shown"""
    ERROR = "error"
    """there was nothing to judge: the agent was down, too slow, crashed, …"""


class FaultCount(Struct, frozen=True):
    """A configured fault, and how often it hit a call of the agent in the runs of one cell."""

    fault: str
    fired: int


class RunEvidence(Struct, frozen=True, kw_only=True):
    """One run of a cell: the prompt, the answer, and what was found in it."""

    run: str
    prompt: str
    repetition: int
    variation: str | None = None
    """what kind of variation of a golden prompt it is"""
    outcome: CellOutcome
    found: str
    faults: tuple[FaultCount, ...] = ()
    """the faults that hit a call in this run; none: it was not exposed"""
    answer: str | None = None
    """the beginning of the answer; None where there is none"""
    earlier_answers: tuple[str, ...] = ()
    """of a conversation: the beginnings of the answers before this one"""
    failure: str | None = None
    """why there is no answer"""
    latency_ms: float = 0.0
    events: tuple[EventRef, ...] = ()
    """the events that decided a rule"""
    trace: str | None = None
    """the file of the run's trace"""


class Cell(Struct, frozen=True, kw_only=True):
    """One invariant in one scenario, over all its runs."""

    invariant: str
    scenario: str
    severity: Weight
    outcome: CellOutcome
    reason: str
    """why it has this outcome, in one line"""
    runs: int = 0
    exposed: int = 0
    """the runs in which a fault that `when` asks for hit a call; all of them where the scenario is calm"""
    decided: int = 0
    """the exposed runs that show something: the invariant held, is violated, or could not be judged"""
    passed: int = 0
    """of those that are decided"""
    failed_unexposed: int = 0
    """the runs in which it is violated or in error although no fault fired: they decide the cell, but are no share"""
    violated_unexposed: int = 0
    """the runs in which it is violated, and does not count: `when` asks for a fault, and none fired"""
    assumed: bool = False
    """kept only because the invariant says `vacuous: ok`: nothing was shown"""
    interval: tuple[float, float] | None = None
    """Wilson's 95 % interval of the share of the decided runs that pass; None where nothing was decided"""
    pass_k: tuple[float, ...] = ()
    """for k = 1, 2, …: how likely k repetitions of a prompt all pass, averaged over the prompts"""
    faults: tuple[FaultCount, ...] = ()
    evidence: tuple[RunEvidence, ...] = ()

    @property
    def applies(self) -> bool:
        return self.outcome is not CellOutcome.NOT_APPLICABLE


class ContractReport(Struct, frozen=True, kw_only=True):
    """The result of `bylaw contract run`."""

    contract: str
    agent: str
    invariants: tuple[Invariant, ...]
    scenarios: tuple[str, ...]
    cells: tuple[Cell, ...]
    agent_runs: int = 0
    """how often the agent was asked, including calm runs for comparison"""
    repetitions: int = 1
    seed: int = 0
    min_score: float = 100.0
    models: tuple[str, ...] = ()
    """where the agent's requests to models went"""
    warnings: tuple[str, ...] = ()
    stopped: str | None = None
    """why the run was given up; then no cell was judged"""
    traces_kept: bool = False

    @property
    def applicable(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.applies)

    @property
    def score(self) -> float:
        """Weighted share of the applicable cells that are ok, in percent; 0 where nothing applies."""
        cells = self.applicable
        whole = sum(cell.severity.points for cell in cells)
        passed = sum(cell.severity.points for cell in cells if cell.outcome is CellOutcome.OK)
        if not whole:
            return 0.0
        # rounding must not turn a score below 100 into 100
        return 100.0 if passed == whole else min(99.99, round(100 * passed / whole, 2))

    @property
    def critical(self) -> tuple[Cell, ...]:
        """Critical violations, which fail the contract whatever the score."""
        return tuple(c for c in self.with_outcome(CellOutcome.VIOLATED) if c.severity is Weight.CRITICAL)

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """The one criterion for the printed verdict and for the exit code of commands."""
        if self.stopped is not None:
            return 4
        if not self.applicable:
            return 3
        violated, errors = self.with_outcome(CellOutcome.VIOLATED), self.with_outcome(CellOutcome.ERROR)
        is_decided = bool(violated or any(not cell.assumed for cell in self.with_outcome(CellOutcome.OK)))
        if is_decided and not self.critical and not errors and self.score >= self.min_score:
            return 0
        if violated:
            return 1
        return 4 if errors else 3

    def with_outcome(self, outcome: CellOutcome) -> tuple[Cell, ...]:
        """The cells that ended so."""
        return tuple(cell for cell in self.cells if cell.outcome is outcome)

    def cell(self, invariant: str, scenario: str) -> Cell:
        """The cell of an invariant in a scenario. Raises StopIteration if the matrix has none."""
        return next(cell for cell in self.cells if (cell.invariant, cell.scenario) == (invariant, scenario))


# Secrets are removed from the parts of a run that reports and stored traces show


S = TypeVar("S", bound=Struct)
_redact = Redactor(Redaction(classes=("secret", "otp")), inside_json=True)
"""also of JSON inside texts, as in arguments of calls: a secret there is recognised by its key alone"""


class ReportRedactor(Struct, frozen=True):
    """INVARIANT: rules and invariants are judged on the unredacted run; only output is redacted."""

    redact: bool = True

    def text(self, text: str) -> str:
        return str(_redact(text)) if self.redact else text

    def trace(self, trace: Trace) -> Trace:
        if not self.redact:
            return trace
        known: dict[int, Event] = {}
        events = tuple(_redact_event(event, known) for event in trace.events)
        return replace(trace, header=_redact(trace.header), events=events, notes=tuple(map(self.text, trace.notes)))

    def pointers(self, pointers: tuple[EventRef, ...], trace: Trace) -> tuple[EventRef, ...]:
        """Excerpts are made again from the redacted events: a secret that an excerpt cuts in two is not recognised."""
        if not self.redact or not pointers:
            return pointers
        pairs = zip(trace.events, self.trace(trace).events, strict=True)
        changed = [ref(after) for before, after in pairs if _differ(before, after)]
        redacted_refs = {_pointer_key(pointer): pointer for pointer in changed}
        return tuple(redacted_refs.get(_pointer_key(pointer)) or _map_fields(pointer, _redact) for pointer in pointers)


def _differ(before: Event, after: Event) -> bool:
    try:
        return before != after
    except RecursionError:
        return True


def _pointer_key(pointer: EventRef) -> tuple[object, ...]:
    return pointer.event, pointer.turn, pointer.name, pointer.call_id


def _redact_event(event: Event, known: dict[int, Event]) -> Event:
    """Events refer to one another: a call inside its response stays the same object."""
    if id(event) not in known:
        known[id(event)] = _map_fields(event, lambda value: _redact_field(value, known))
    return known[id(event)]


def _redact_field(value: Any, known: dict[int, Event]) -> Any:
    if isinstance(value, Event):
        return _redact_event(value, known)
    if isinstance(value, tuple):
        return tuple(_redact_field(one, known) for one in value)
    if isinstance(value, Deferred):
        return _redact(value.get())
    return _map_fields(value, _redact) if isinstance(value, Struct) else _redact(value)


def _map_fields(struct: S, change: Callable[[Any], Any]) -> S:
    return replace(struct, **{name: change(getattr(struct, name)) for name in struct.__struct_fields__})
