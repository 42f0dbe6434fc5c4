"""The calls by which the candidate mends a rule, in the sessions where it does. They are shown and do not gate.

A fixed violation names calls that were missing (`must_call_before`, `must_call_once`, …) or that were one too many
(`no_call`, `max_calls`). As many of the calls that were added or removed in that session are excused as violations were
fixed there, and nothing else: whatever else changed in the session, or in another one, still gates. A formula names no
single call, so nothing is excused for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from bylaw.diff.model import PolicyDiff
from bylaw.engine.matching import compile_names, compile_where
from bylaw.model.demand import Before, Calls, Demand, Never, Next, Tally
from bylaw.model.events import ToolCall
from bylaw.model.rule import Rule
from bylaw.traces.comparison.compare import Group
from bylaw.traces.comparison.recording import Recording

Broken = Mapping[tuple[str, str], Counter[str]]


def excused_calls(policy: PolicyDiff, rules: Sequence[Rule], groups: Sequence[Group], broken: Broken) -> frozenset[int]:
    """The `id` of each call that is left out. `broken`: how often each session of the candidate breaks each rule."""
    demands = {rule.id: rule.demand for rule in rules}
    group_of = {(one.trace, one.session): number for number, group in enumerate(groups) for one in group.baseline}
    only = {one.trace: number for number, group in enumerate(groups) for one in group.baseline}
    sessions = Counter(one.trace for group in groups for one in group.baseline)
    fixed: dict[tuple[int, str], Counter[str | None]] = {}
    for change in policy.fixes:
        number = group_of.get((change.trace, change.session or ""))
        if number is None and change.session is None and sessions[change.trace] == 1:
            number = only[change.trace]
        if number is not None:
            fixed.setdefault((number, change.rule), Counter())[change.session] += 1
    excused: set[int] = set()
    for (number, rule), violations in fixed.items():
        group = groups[number]
        keeps = [one for one in group.candidate if rule not in broken.get((one.trace, one.session), ())]
        missing, excess = named_calls(demands[rule])
        most, share = max(violations.values()), len(group.candidate) / len(group.baseline)
        total = math.ceil(violations.total() * share - 1e-9)
        excused.update(_added_calls(keeps, group.baseline, missing, most, total, excused) if missing else ())
        if excess and keeps:
            excused.update(_added_calls(group.baseline, keeps, excess, most, violations.total(), excused))
    return frozenset(excused)


def named_calls(demand: Demand) -> tuple[Calls | None, Calls | None]:
    """The calls whose absence breaks the demand, and those whose presence does."""
    match demand:
        case Before(first=calls) | Next(must=Calls() as calls):
            return calls, None
        case Never(probe=Calls() as calls):
            return None, calls
        case Tally(measure=Calls() as calls, at_least=least):
            return (calls if least else None), calls
    return None, None


def _added_calls(
    recordings: Iterable[Recording], others: Sequence[Recording], calls: Calls, most: int, total: int, known: set[int]
) -> list[int]:
    """The matching calls that these sessions have and the others lack: at most `most` in each, `total` in all."""
    fits = _call_matcher(calls)
    fewest = min((len(_find_calls(one, fits)) for one in others), default=0)
    left: list[int] = []
    for recording in recordings:
        found = _find_calls(recording, fits)
        room = min(most, len(found) - fewest, total - len(left))
        left += [call for call in found if call not in known][: max(0, room)]
    return left


def _find_calls(recording: Recording, fits: Callable[[ToolCall], bool]) -> list[int]:
    return [id(call) for step in recording.steps for call in step.response.tool_calls if fits(call)]


def _call_matcher(calls: Calls) -> Callable[[ToolCall], bool]:
    is_named = compile_names(calls)
    where = None if calls.where is None else compile_where(calls.where)
    return lambda call: is_named(call.name) and (where is None or where(call) is True)
