"""Why a verdict came out as it did, in the user's own words: the parts of the formula, and the events at hand."""

from __future__ import annotations

from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.frame import Frame, Position, elapsed
from bylaw.engine.temporal.shape import Part, variables
from bylaw.engine.temporal.truth import Sigma
from bylaw.engine.temporal.variables import show_key
from bylaw.model.temporal import And, Back, Count, Formula, Implies, Not, Pair, Window
from bylaw.model.verdict import EventRef


def describe_event(event: EventRef) -> str:
    tool = "a tool" if event.name is None else f"`{event.name}`"
    return {"tool_call": f"{tool} was called", "tool_result": f"{tool} returned"}.get(event.event, "the model answered")


def explain_failure(part: Part, frame: Frame, builder: Builder) -> tuple[str, tuple[EventRef, ...]]:
    """The message where a position fails at once, and the earlier events that matter."""
    assert frame.position is not None
    happened = describe_event(frame.position.place())
    wanted, sigma = _wanted(part.body, frame, builder)
    reason, evidence = _reason(wanted, frame, sigma, builder)
    values = _values(wanted, sigma, builder, in_words=bool(part.words))
    rule = part.words or f"`{wanted.text}` is not true there"
    return f"{happened}, but {rule}{values}{reason}", evidence


def explain_unmet(part: Part, origin: EventRef, late: str) -> str:
    body = part.body
    wanted = body.right if isinstance(body, Implies) else body
    if part.words:
        return f"{describe_event(origin)}, but {part.words}{late if late.startswith(':') else f', and none came{late}'}"
    return f"{describe_event(origin)}, but `{wanted.text}` did not come true{late}"


def _wanted(body: Formula, frame: Frame, builder: Builder) -> tuple[Formula, Sigma]:
    """The part that should be true: the right side of an implication, and in it the first conjunct that fails."""
    sigma = builder.unset
    while isinstance(body, Implies | And):
        matches, value = builder.matchers.get(body.left), builder.values.get(body.left)
        if matches is not None:
            found = matches(frame, sigma)
            if not found:
                break
            sigma = found[0][0]
        elif isinstance(body, And) and value is not None and value(frame, sigma) is False:
            body = body.left
            continue
        body = body.right
    return body, sigma


def _reason(wanted: Formula, frame: Frame, sigma: Sigma, builder: Builder) -> tuple[str, tuple[EventRef, ...]]:
    match wanted:
        case Back(op="Y", of=of) if frame.before is not None:
            return _reason(of, frame, sigma, builder)
        case Count() if wanted in builder.tables:
            return _places(wanted, frame, sigma, builder)
        case Back(op="O") | Pair(op="S"):
            return _nothing_before(wanted, frame, sigma, builder)
        case Not(of=of):
            while isinstance(of, Back) and of.op == "Y":
                of = of.of
            return _places(of, frame, sigma, builder) if of in builder.tables else ("", ())
        case _:
            return "", ()


def _nothing_before(wanted: Formula, frame: Frame, sigma: Sigma, builder: Builder) -> tuple[str, tuple[EventRef, ...]]:
    at = builder.tables.get(wanted)
    nothing = ": nothing earlier matches" if isinstance(wanted, Back) else ": no match before is still in force"
    if at is None or at.window is None:
        return nothing, ()
    cell = frame.memory[at.slot].cells.get(at.key_of(sigma))
    if cell is None:
        return nothing, ()
    last = cell.matches[-1]
    passed = elapsed(frame.clocks, last.clocks, at.window)
    if passed <= at.window.bound:
        return ": what matched earlier does not pass the comparison", _refs(last.place)
    late = (
        f": the last match was {show(passed, at.window)} before, {show(passed - at.window.bound, at.window)} too long"
    )
    return late, _refs(last.place)


def _places(formula: Formula, frame: Frame, sigma: Sigma, builder: Builder) -> tuple[str, tuple[EventRef, ...]]:
    at = builder.tables[formula]
    cell = frame.memory[at.slot].cells.get(at.key_of(sigma))
    earlier = [match for match in cell.matches if match.clocks.events < frame.clocks.events] if cell is not None else []
    return "", tuple(place for match in earlier[-8:] for place in _refs(match.place))


def _refs(place: EventRef | Position | None) -> tuple[EventRef, ...]:
    if place is None:
        return ()
    return (place.place() if isinstance(place, Position) else place,)


def _values(wanted: Formula, sigma: Sigma, builder: Builder, *, in_words: bool) -> str:
    names = [name for name in variables(wanted) if sigma[builder.variables.index(name)] is not None]
    sign = "" if in_words else "$"
    shown = [f"{sign}{name} = {show_key(sigma[builder.variables.index(name)])}" for name in names]
    return f" ({', '.join(shown)})" if shown else ""


def show(amount: float, window: Window) -> str:
    """A stretch of a clock, for people."""
    if window.unit != "seconds":
        unit = window.unit[:-1] if amount == 1 else window.unit
        return f"{amount:g} {unit}"
    return show_seconds(amount)


def show_seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g}s"
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:.0f}{unit}")
    return " ".join(parts[:2])
