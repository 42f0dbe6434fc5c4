"""Compliance reports for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from bylaw.comply.model import BehavioralRule, ComplyReport, PromptDiff, PromptRule, State
from bylaw.comply.report import wording
from bylaw.report.text import count, printable, wrap

SHOWN = 5
"""violations shown for one rule"""
_GATE = {0: ("✓", "green"), 1: ("✗", "red"), 2: ("✗", "red"), 3: ("∅", "yellow"), 4: ("∅", "yellow")}
_KINDS = {"added": "green", "tightened": "green", "dropped": "red", "loosened": "red", "changed": "yellow"}


def render_comply(report: ComplyReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ComplyReport) -> Iterator[str]:
    mark, colour = _GATE[report.exit_code]
    title = click.style(f"{mark} {wording.headline(report)}", fg=colour, bold=True)
    yield f"{title}  ({printable(wording.size(report))})"
    yield ""
    for rule in wording.violated(report):
        yield from _violated(report, rule)
    yield from _undecided(report)
    for result in report.results[: SHOWN * 2]:
        name = f"{printable(result.trace)}: " if len(report.results) > 1 else ""
        yield f"{name}{wording.coverage(result)}"
    if len(report.results) > SHOWN * 2:
        yield f"… and {len(report.results) - SHOWN * 2:,} more traces"
    cost = wording.cost(report)
    if cost:
        yield cost
    yield from (click.style(f"note: {printable(remark)}", dim=True) for remark in wording.remarks(report))


def _violated(report: ComplyReport, rule: BehavioralRule) -> Iterator[str]:
    yield _rule_line(report, rule, "✗", "red", "violated")
    yield from _description(rule)
    found = wording.violations_of(report, rule)
    for trace, where, violation in found[:SHOWN]:
        yield f"    {printable(f'{trace} · {where}')} · confidence {violation.confidence:.2f}"
        yield from wrap(violation.explanation, indent="      ")
        yield from wrap(violation.evidence, indent="      → ", hanging="        ")
    if len(found) > SHOWN:
        yield f"    … and {len(found) - SHOWN:,} more (`--format json` has every one)"
    yield ""


def _undecided(report: ComplyReport) -> Iterator[str]:
    for rule, reasons in wording.undecided(report):
        yield _rule_line(report, rule, "?", "yellow", "undecided")
        yield from _description(rule)
        for reason in reasons[:SHOWN]:
            yield from wrap(reason, indent="    ")
        yield ""


def _description(rule: BehavioralRule) -> Iterator[str]:
    return (click.style(line, dim=True) for line in wrap(wording.one_line(rule.description), indent="    "))


def _rule_line(report: ComplyReport, rule: BehavioralRule, mark: str, colour: str, state: str) -> str:
    place = wording.place(report.prompt, report.text, rule.start)
    tier = "" if rule.state is State.UNDECIDED else f"{rule.tier} · "
    about = click.style(printable(f"{tier}{rule.severity} · {place}"), dim=True)
    return f"{click.style(f'{mark} {printable(rule.rule_id)}', fg=colour, bold=True)}  {state}  {about}"


# -- the rules of a prompt ---------------------------------------------------------------------------------------------


def render_rules(rules: Sequence[PromptRule], file: str, text: str) -> str:
    return "\n".join(_rules(rules, file, text)) + "\n"


def _rules(rules: Sequence[PromptRule], file: str, text: str) -> Iterator[str]:
    for rule in rules:
        place = wording.place(file, text, rule.start)
        kinds = ", ".join(dict.fromkeys(str(one.item.get("kind")) for one in rule.items)) or "not checkable"
        tier = f"{rule.tier} · " if rule.items else ""
        about = click.style(printable(f"{tier}{rule.severity} · {kinds} · {place}"), dim=True)
        yield f"{click.style(printable(rule.rule_id), bold=True)}  {about}"
        yield from wrap(wording.one_line(rule.description), indent="    ")
        if rule.undecided:
            yield from wrap(f"undecided: {rule.undecided}", indent="    ")
    decidable = sum(bool(rule.items) for rule in rules)
    total = f"{count(len(rules), 'rule')}, {decidable} of them checkable"
    yield total if rules else "no rule could be read from the prompt"


# -- two versions of a prompt ------------------------------------------------------------------------------------------


def render_diff(diff: PromptDiff) -> str:
    return "\n".join(_diff(diff)) + "\n"


def _diff(diff: PromptDiff) -> Iterator[str]:
    mark, colour = _GATE[diff.exit_code]
    yield click.style(f"{mark} {wording.diff_headline(diff)}", fg=colour, bold=True)
    for change in diff.changes:
        name = (change.after or change.before).rule_id  # type: ignore[union-attr]
        why = f"  {printable(change.why)}" if change.why else ""
        yield f"{click.style(change.kind, fg=_KINDS[change.kind])}  {printable(name)}{why}"
        for sign, rule, place in wording.diff_sides(diff, change):
            yield f"    {sign} {wording.one_line(rule.description)}  {click.style(printable(place), dim=True)}"
    yield from (click.style(f"note: {printable(note)}", dim=True) for note in diff.notes)
