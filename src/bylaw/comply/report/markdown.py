"""Compliance reports for a pull request or a summary page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.comply.model import BehavioralRule, ComplyReport, PromptDiff, PromptRule
from bylaw.comply.report import wording
from bylaw.report.text import escape_markdown, inline_code

SHOWN = 5
_MARKS = {0: "✅", 1: "❌", 2: "❌", 3: "⚠️", 4: "⚠️"}


def render_comply(report: ComplyReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ComplyReport) -> Iterator[str]:
    yield f"### {_MARKS[report.exit_code]} Bylaw comply: {escape_markdown(wording.headline(report))}"
    yield ""
    yield escape_markdown(wording.size(report))
    yield ""
    for rule in wording.violated(report):
        yield from _violated(report, rule)
    open_ = [
        f"- **{escape_markdown(r.rule_id)}**: {escape_markdown('; '.join(why[:SHOWN]))}"
        for r, why in wording.undecided(report)
    ]
    if open_:
        yield from ("**Undecided**", "", *open_, "")
    for result in report.results[: SHOWN * 2]:
        yield f"{escape_markdown(result.trace)}: {escape_markdown(wording.coverage(result))}  "
    yield from (f"> {escape_markdown(remark)}" for remark in wording.remarks(report))


def _violated(report: ComplyReport, rule: BehavioralRule) -> Iterator[str]:
    place = wording.place(report.prompt, report.text, rule.start)
    yield f"**{escape_markdown(rule.rule_id)}** violated · {rule.tier} · {rule.severity} · {inline_code(place)}"
    yield ""
    yield f"> {escape_markdown(wording.one_line(rule.description))}"
    yield ""
    found = wording.violations_of(report, rule)
    for trace, where, violation in found[:SHOWN]:
        turn = where.partition(" · ")[0]  # the evidence names the event
        yield f"- {escape_markdown(trace)}, {turn}: {inline_code(violation.evidence)}"
    if len(found) > SHOWN:
        yield f"- … and {len(found) - SHOWN:,} more"
    yield ""


def render_rules(rules: Sequence[PromptRule], file: str, text: str) -> str:
    lines = ["| rule | tier | severity | place | sentence | |", "|---|---|---|---|---|---|"]
    for rule in rules:
        place = inline_code(wording.place(file, text, rule.start))
        sentence, why = escape_markdown(wording.one_line(rule.description)), escape_markdown(rule.undecided or "")
        tier = rule.tier if rule.items else "–"
        lines.append(f"| {escape_markdown(rule.rule_id)} | {tier} | {rule.severity} | {place} | {sentence} | {why} |")
    return "\n".join(lines) + "\n"


def render_diff(diff: PromptDiff) -> str:
    lines = [f"### {_MARKS[diff.exit_code]} Bylaw comply diff: {escape_markdown(wording.diff_headline(diff))}", ""]
    for change in diff.changes:
        name = (change.after or change.before).rule_id  # type: ignore[union-attr]
        lines.append(
            f"- **{change.kind}** {escape_markdown(name)}{f': {escape_markdown(change.why)}' if change.why else ''}"
        )
        for sign, rule, place in wording.diff_sides(diff, change):
            side = "before" if sign == "-" else "after"
            lines.append(f"    - {side} {escape_markdown(wording.one_line(rule.description))} ({inline_code(place)})")
    return "\n".join([*lines, *(f"> {escape_markdown(note)}" for note in diff.notes)]) + "\n"
