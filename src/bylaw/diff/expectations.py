"""Intended changes: `expected:` in a rule file and `--expect`. They are shown with their reason and never gate.

    expected:
      - {tool: confirm, change: gone, reason: the form asks now}
      - {axis: latency, reason: a larger model}
      - {rule: confirm-first, reason: replaced by the form}

On the command line the same is one text: `tool confirm gone: the form asks now`, `axis latency: a larger model`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.diff.axes import AXES
from bylaw.diff.model import AxisRow, Change, Finding, RuleRate
from bylaw.errors import InputError
from bylaw.model.rule import Rule, RuleSet
from bylaw.rules.loader import Rules, as_rules, read_rules
from bylaw.rules.messages import did_you_mean, near_name, nearest_choice, quote
from bylaw.rules.nodes import ListNode, MapNode, Node
from bylaw.rules.params import Context
from bylaw.rules.readers import Choice, Fields, read_text, report_wrong_type
from bylaw.rules.rule import Ids
from bylaw.rules.versions import VersionChoice
from bylaw.traces.comparison.compare import Group
from bylaw.traces.comparison.recording import Recording

SECTION = "expected"
KINDS = ("tool", "axis", "rule")
CHANGES = ("more", "less", "new", "gone")
EXPECTED_AXES = (*AXES, "answer")
_AXIS = Choice("axis", EXPECTED_AXES, "unknown-value", "unknown axis {}")
_CHANGE = Choice("change", CHANGES, "unknown-value", "unknown change {}")
EXPECTED_SCHEMA: dict[str, Any] = {
    "type": "array",
    "description": "changes that `bylaw diff` shall show and not gate on",
    "items": {
        "type": "object",
        "properties": {
            "tool": {"type": "string", "minLength": 1, "description": "a tool that is called otherwise"},
            "change": {"enum": list(CHANGES), "description": "how the calls of the tool change"},
            "axis": {"enum": list(EXPECTED_AXES), "description": "an axis that gets worse"},
            "rule": {"type": "string", "minLength": 1, "description": "the id of a rule that is broken more often"},
            "reason": {"type": "string", "minLength": 1, "description": "why; shown beside the change"},
        },
        "required": ["reason"],
        "oneOf": [{"required": [kind]} for kind in KINDS],
        "additionalProperties": False,
    },
}


class Expectation(Struct, frozen=True):
    kind: str
    """`tool`, `axis` or `rule`"""
    name: str
    reason: str
    change: str | None = None
    """of a tool: `more`, `less`, `new` or `gone`; None: any"""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.name, self.change)))

    def covers(self, finding: Finding) -> bool:
        if self.kind == "axis":
            return finding.axis == self.name
        if self.kind != "tool" or finding.tool != self.name:
            return False
        if self.change is None:
            return True
        return finding.what in ("calls", "called", "argument names") and self.holds(finding.baseline, finding.candidate)

    def holds(self, baseline: float, candidate: float) -> bool:
        """Whether calls per session changed as expected."""
        more, less = candidate > baseline, candidate < baseline
        holds = {"more": more, "less": less, "new": more and not baseline, "gone": less and not candidate}
        return self.change is None or holds[self.change]


# -- reading ----------------------------------------------------------------------------------------------------------


def read_expected(documents: Sequence[Node], found: list[Expectation], ids: Ids, context: Context) -> None:
    """Add what the section says, and report what is wrong with it. `ids`: of the rules."""
    root = documents[0]
    entry = root.entries.get(SECTION) if isinstance(root, MapNode) else None
    if entry is None:
        return
    if not isinstance(entry.value, ListNode):
        report_wrong_type(entry.value, "`expected`", "a list", context.problems, help="start each entry with `- `")
        return
    found += [one for item in entry.value.items if (one := _read_one(item, ids, context)) is not None]


def check_expected(documents: Sequence[Node], rules: Sequence[Rule], ids: Ids, context: Context) -> None:
    """For `bylaw lint`: report what is wrong with the section."""
    read_expected(documents, [], ids, context)


def _read_one(node: Node, ids: Ids, context: Context) -> Expectation | None:
    problems = context.problems
    if not isinstance(node, MapNode):
        report_wrong_type(node, "an entry of `expected`", "a mapping", problems)
        return None
    fields = Fields(node, problems, what="an entry of `expected`")
    kinds = [kind for kind in KINDS if kind in node.entries]
    values = {kind: fields.take(kind) for kind in KINDS}
    changed, why = fields.take("change"), fields.require("reason", help="say why the change is intended")
    if len(kinds) != 1:
        fields.missing(KINDS, help="name one of them")
    fields.finish(shown=(*KINDS, "change", "reason"))
    if len(kinds) != 1 or why is None:
        return None
    [kind] = kinds
    at = values[kind]
    assert at is not None
    if kind == "axis":
        name = _AXIS.read(at, problems)
    else:
        name = read_text(at, kind, problems)
        if kind == "rule" and name is not None and name not in ids:
            help = did_you_mean(name, ids) if ids else "put the rule under `rules:`"
            problems.warn(code="unknown-rule", message=f"there is no rule {quote(name)}", at=at, help=help)
    change = None
    if changed is not None:
        change = _CHANGE.read(changed, problems)
        if kind != "tool":
            problems.error(code="unknown-key", message=f"`change` goes with `tool`, not with `{kind}`", at=changed)
    reason = read_text(why, "reason", problems)
    return None if name is None or reason is None else Expectation(kind, name, reason, change)


def parse_expectation(text: str) -> Expectation:
    """`KIND NAME [CHANGE]: REASON`; ValueError where it is something else."""
    what, colon, reason = text.partition(": ")
    kind, _, name = what.strip().partition(" ")
    name, _, change = name.strip().rpartition(" ") if kind == "tool" else (name.strip(), "", "")
    if kind == "tool" and change not in CHANGES:
        name, change = f"{name} {change}".strip(), ""
    if kind == "axis" and name and name not in EXPECTED_AXES:
        raise ValueError(f"{text!r}: unknown axis `{name}`; {did_you_mean(name, EXPECTED_AXES)}")
    if kind not in KINDS or not name or not colon or not reason.strip():
        kinds = "`tool NAME [more|less|new|gone]: REASON`, `axis NAME: REASON` or `rule ID: REASON`"
        raise ValueError(f"{text!r}: expected {kinds}")
    return Expectation(kind, name, reason.strip(), change or None)


def load_with_expectations(
    rules: Rules | Sequence[str], *, inputs: Mapping[str, str] | None = None, version: VersionChoice = None
) -> tuple[RuleSet, tuple[Expectation, ...]]:
    """The rules, and what the same files expect; InputError with every problem found."""
    paths = [rules] if isinstance(rules, str | PathLike) else rules
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(one, str | PathLike) for one in paths):
        return as_rules(rules), ()  # type: ignore[arg-type]
    found: list[Expectation] = []

    def section(documents: Sequence[Node], rules: Sequence[Rule], ids: Ids, context: Context) -> None:
        read_expected(documents, found, ids, context)

    loaded = read_rules(paths, sections=(section,), inputs=inputs, version=version)
    if any(problem.is_error for problem in loaded.diagnostics):
        raise InputError(loaded.diagnostics)
    return loaded, tuple(found)


# -- applying ---------------------------------------------------------------------------------------------------------


class AppliedExpectations(Struct):
    """The changes with the reasons of those that were expected, and the expectations that nothing met."""

    axes: tuple[AxisRow, ...]
    findings: tuple[Finding, ...]
    rates: tuple[RuleRate, ...]
    unused: tuple[str, ...]


def apply_expectations(
    expectations: Iterable[Expectation],
    axes: Sequence[AxisRow],
    findings: Sequence[Finding],
    rates: Sequence[RuleRate],
    tools: Collection[str] = (),
    rules: Collection[str] = (),
) -> AppliedExpectations:
    """`tools` and `rules`: the names that there are, for expectations that nothing met."""
    used: set[Expectation] = set()
    known = list(expectations)

    def reason(hits: Iterable[Expectation]) -> str | None:
        chosen = list(hits)
        used.update(chosen)
        return chosen[0].reason if chosen else None

    marked = [replace(one, expected=reason(e for e in known if e.covers(one))) for one in findings]
    rows = [
        replace(row, expected=reason(e for e in known if e.kind == "axis" and e.name == row.axis))
        if row.severity is not Change.NONE
        else row
        for row in axes
    ]
    broken = [
        replace(rate, expected=reason(e for e in known if e.kind == "rule" and e.name == rate.rule))
        if rate.is_worse
        else rate
        for rate in rates
    ]
    unused = tuple(_describe_unused(one, rules if one.kind == "rule" else tools) for one in known if one not in used)
    return AppliedExpectations(tuple(rows), tuple(marked), tuple(broken), unused)


def _describe_unused(one: Expectation, names: Collection[str]) -> str:
    """The expectation, and whether its name is one that there is not."""
    if one.kind == "axis" or one.name in names:
        return str(one)
    match = near_name(one.name, names) or nearest_choice(one.name, names)
    advice = f"; did you mean {match}?" if match else ""
    return f"{one} ({'neither side calls it' if one.kind == 'tool' else 'there is no such rule'}{advice})"


def expected_tools(expectations: Iterable[Expectation], groups: Sequence[Group]) -> frozenset[str]:
    """The tools whose calls changed as expected. Those that changed otherwise are compared like any other."""
    found = [one for one in expectations if one.kind == "tool"]
    if not found:
        return frozenset()
    sides = (
        [_rates(recordings) for recordings in side]
        for side in ([group.baseline for group in groups], [group.candidate for group in groups])
    )
    before, after = (sum(side, Counter()) for side in sides)
    return frozenset(one.name for one in found if one.holds(before[one.name], after[one.name]))


def _rates(recordings: Sequence[Recording]) -> Counter[str]:
    """Calls per session of one task."""
    calls = Counter(call.name for one in recordings for step in one.steps for call in step.response.tool_calls)
    return Counter({name: count / len(recordings) for name, count in calls.items()})


def as_expectations(given: Iterable[str | Mapping[str, str]]) -> tuple[Expectation, ...]:
    """From Python: texts as on the command line, or mappings as in a rule file."""
    return tuple(parse_expectation(one if isinstance(one, str) else _as_text(one)) for one in given)


def _as_text(entry: Mapping[str, str]) -> str:
    kinds: Collection[str] = [kind for kind in KINDS if kind in entry]
    unknown = set(entry) - {*KINDS, "change", "reason"}
    if len(kinds) != 1 or unknown:
        raise ValueError(f"expect={dict(entry)!r}: expected one of {', '.join(KINDS)}, with a reason")
    [kind] = kinds
    return f"{' '.join(filter(None, (kind, entry[kind], entry.get('change'))))}: {entry.get('reason', '')}"
