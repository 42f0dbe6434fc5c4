"""Divergences: the turns at which the two sides differ, each with its kind.

structural: other tools, other argument names, another order or number of calls, a turn lost or added.
decision: other argument values, another stop reason, or other facts in the text: numbers, yes or no, negation.
style: other words only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from bylaw.diff.model import Divergence, DivergenceKind
from bylaw.model.canonical import canonical_json
from bylaw.model.events import Response
from bylaw.text.decisions import Decisions, decisions, disagree
from bylaw.text.figure_places import as_written, exchanged
from bylaw.text.similarity import Lexicon, words
from bylaw.traces.comparison.compare import Comparison
from bylaw.traces.comparison.recording import Recording, Step, arguments, exchanged_in_messages

MOST_LISTED = 20
_GRAVITY = {"structural": 0, "decision": 1, "style": 2}
_POLAR = frozenset(
    {
        "yes", "no", "not", "never", "none", "cannot", "can't", "won't", "don't", "isn't", "wasn't", "didn't",
        "without", "approved", "denied", "accepted", "rejected", "refused", "allowed", "forbidden", "confirmed",
        "cancelled", "canceled", "success", "successful", "failed", "failure", "true", "false", "eligible",
        "ineligible", "available", "unavailable", "valid", "invalid", "open", "closed",
    }
)  # fmt: skip
"""words that reverse a statement"""


def divergences(
    comparisons: Sequence[Comparison], lexicon: Lexicon, tools: Collection[str] = ()
) -> tuple[tuple[Divergence, ...], int]:
    """The first divergence and the gravest ones, in order of appearance, and the number of all divergences.

    `tools`: those whose calls are known to have changed; divergences that name one of them are the gravest.
    """
    found = [one for comparison in comparisons for one in _in_session(comparison, lexicon)]
    gravest = sorted(range(len(found)), key=lambda i: (*gravity(found[i], tools), i))
    listed = sorted({*range(min(1, len(found))), *gravest[: MOST_LISTED - 1]})
    alike = Counter((one.kind, one.what) for one in found)
    return tuple(replace(found[i], alike=alike[found[i].kind, found[i].what]) for i in listed), len(found)


def gravity(divergence: Divergence, tools: Collection[str]) -> tuple[bool, int, float]:
    """Smaller is graver: calls of a tool that is known to have changed, then calls before decisions before words."""
    named = divergence.kind != "style" and any(tool in divergence.what.replace(",", " ").split() for tool in tools)
    return not named, _GRAVITY[divergence.kind], -divergence.weight


def _in_session(comparison: Comparison, lexicon: Lexicon) -> Iterator[Divergence]:
    where = comparison.baseline
    for b, c in comparison.sides:
        if b is None or c is None:
            yield _unmatched_step(b, c, where)
        elif not _is_same(b.response, c.response):
            found = _classify(b, c)
            if found is not None:
                yield _divergence(b, c, where, *found, _weight(b, c, lexicon))


def _is_same(left: Response, right: Response) -> bool:
    """A fast test that most turns pass."""
    is_said = left.text == right.text and left.stop_reason == right.stop_reason
    return is_said and left.tool_calls == right.tool_calls


def _unmatched_step(b: Step | None, c: Step | None, where: Recording) -> Divergence:
    step = b or c
    assert step is not None
    calls = ", ".join(call.name for call in step.response.tool_calls)
    turn = f"a turn that calls {calls}" if calls else "a turn"
    return _divergence(b, c, where, "structural", f"{turn} {'is missing' if b else 'was added'}", 1.0)


def _divergence(
    b: Step | None, c: Step | None, where: Recording, kind: DivergenceKind, what: str, weight: float
) -> Divergence:
    return Divergence(
        turn=b.turn if b else c.turn if c else None,
        kind=kind,
        what=what,
        baseline=quote(b) if b else None,
        candidate=quote(c) if c else None,
        session=where.session,
        trace=where.trace,
        baseline_turn=b.turn if b else None,
        candidate_turn=c.turn if c else None,
        weight=weight,
    )


def _weight(b: Step, c: Step, lexicon: Lexicon) -> float:
    calls = 0.0 if b.tokens == c.tokens else 0.5
    return round(calls + 0.5 * (1 - lexicon.similarity(b.text, c.text)), 6)


def _classify(b: Step, c: Step) -> tuple[DivergenceKind, str] | None:
    if b.shape != c.shape:
        return "structural", _structural(b, c)
    if b.tokens != c.tokens:
        return "decision", _changed_arguments(b, c)
    if b.response.stop_reason != c.response.stop_reason:
        return "decision", f"the stop reason changed from {b.response.stop_reason} to {c.response.stop_reason}"
    if b.text != c.text:
        facts = _changed_facts(b.text, c.text)
        return ("decision", facts) if facts else ("style", "other words")
    if list(map(arguments, b.response.tool_calls)) != list(map(arguments, c.response.tool_calls)):
        both = zip(b.response.tool_calls, c.response.tool_calls, strict=True)
        moved = [one for before, after in both for one in exchanged_in_messages(before, after)]
        return ("decision", _exchange(moved)) if moved else ("style", "other words in arguments")
    return None


def _structural(b: Step, c: Step) -> str:
    before, after = (Counter(call.name for call in side.response.tool_calls) for side in (b, c))
    lost = [f"{name} is no longer called" for name in sorted(before - after)]
    added = [f"{name} is called" for name in sorted(after - before)]
    if lost or added:
        return ", ".join([*lost, *added])
    if Counter(b.shape) == Counter(c.shape):
        return "the same calls in another order"
    return "other argument names: " + ", ".join(sorted({*c.shape} - {*b.shape}) or sorted({*b.shape} - {*c.shape}))


def _changed_arguments(b: Step, c: Step) -> str:
    changed = []
    for before, after in zip(b.response.tool_calls, c.response.tool_calls, strict=True):
        left, right = arguments(before), arguments(after)
        if isinstance(left, dict) and isinstance(right, dict):
            keys = [key for key in left if canonical_json(left[key]) != canonical_json(right.get(key))]
            changed += [
                f"{before.name} {key}: {_shorten_value(left[key])} → {_shorten_value(right.get(key))}" for key in keys
            ]
        elif left != right:
            changed.append(f"{before.name}: {_shorten_value(left)} → {_shorten_value(right)}")
    return "; ".join(changed[:4])


def _changed_facts(before: str, after: str) -> str:
    """Facts and reversing words that only one side has, where the two decide otherwise."""
    left, right = decisions(before), decisions(after)
    polar = _only_on_one_side(_polar(before), _polar(after))
    found = []
    if disagree(left, right):
        kinds = sorted({kind for kind, _ in left.facts ^ right.facts})
        found = [
            (f"{_KINDS.get(kind, kind)}s", _only_on_one_side(_values_of_kind(left, kind), _values_of_kind(right, kind)))
            for kind in kinds
        ]
        if left.shape != right.shape:
            found.append(("JSON", (["its shape"], ["another"])))
    moved = as_written(exchanged(left.places, right.places), before)
    changed = [
        _lost_and_added(name, lost[:4], added[:4])
        for name, (lost, added) in (*found, ("words", polar))
        if lost or added
    ]
    return "; ".join([*changed, *([_exchange(moved)] if moved else [])])


def _exchange(figures: list[str]) -> str:
    """`values exchanged: 10 and 20`; names are values too"""
    shown = [_truncate(figure, 40) for figure in figures[:4]]
    return f"values exchanged: {', '.join(shown[:-1])} and {shown[-1]}"


_KINDS = {"id": "identifier"}


def _values_of_kind(decided: Decisions, kind: str) -> list[str]:
    return [spelling for _, spelling in decided.of(kind)]


def _lost_and_added(name: str, lost: list[str], added: list[str]) -> str:
    if lost and added:
        return f"{name} changed: {', '.join(lost)} → {', '.join(added)}"
    return f"{name} added: {', '.join(added)}" if added else f"{name} removed: {', '.join(lost)}"


def _polar(text: str) -> list[str]:
    return [word for word in words(text.replace("\u2019", "'")) if word in _POLAR]


def _only_on_one_side(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    left, right = Counter(before), Counter(after)
    return sorted((left - right).elements()), sorted((right - left).elements())


def quote(step: Step) -> str:
    """A turn in one line: its calls, then its text."""
    calls = [f"{call.name}({_shorten_value(arguments(call))})" for call in step.response.tool_calls]
    text = _flat(step.text)
    return _truncate(" ".join([*calls, *([f'"{text}"'] if text else [])]) or "(nothing)", 240)


def _shorten_value(value: object) -> str:
    return _truncate(_flat(canonical_json(value).decode(errors="replace")), 80)


def _flat(text: str) -> str:
    return " ".join(text[:1_000].split())


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
