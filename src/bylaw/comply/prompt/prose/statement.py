"""One statement of a prompt → the rules it states."""

from __future__ import annotations

import re

from msgspec.structs import replace

from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.model import EngineItem, PromptRule, RuleSeverity
from bylaw.comply.prompt.prose.binding import bind, is_destroying
from bylaw.comply.prompt.prose.clauses import Clause, read_clauses
from bylaw.comply.prompt.prose.context import Context, Tools
from bylaw.comply.prompt.prose.forbidding import read_forbidden
from bylaw.comply.prompt.prose.lowering import Draft
from bylaw.comply.prompt.prose.markers import Force, Marker, find_marker, imperative_at
from bylaw.comply.prompt.prose.reading import Reading, View, slug
from bylaw.comply.prompt.prose.requiring import read_required
from bylaw.comply.prompt.prose.reserving import read_reserved
from bylaw.comply.prompt.prose.sentence import MAX_SENTENCE, prepare

ENGINE_SEVERITY = {"critical": "critical", "high": "error", "medium": "warning", "low": "info"}
_NO = re.compile(r"\W*(no)\s+\w", re.IGNORECASE)
_READERS = {Force.FORBID: read_forbidden, Force.REQUIRE: read_required, Force.ONLY: read_reserved}


def read_with(statement: Statement, tools: Tools) -> list[PromptRule]:
    """The rules of one sentence; none where it demands nothing."""
    if len(statement.text) > MAX_SENTENCE:
        return _unread(statement)
    sentence = prepare(statement.text, tools.specs)
    if sentence is None:
        return []
    context = Context(sentence, tools, section=statement.tool)
    clauses = read_clauses(sentence.masked, sentence.body)
    rules = [_rule(statement, clause, context, len(clauses) == 1) for clause in clauses]
    return [rule for rule in rules if rule is not None]


def _unread(statement: Statement) -> list[PromptRule]:
    """A sentence too long to be read states a rule all the same, if its beginning does."""
    marker = find_marker(statement.text[:MAX_SENTENCE])
    if marker is None or marker.force not in _READERS:
        return []
    name = " ".join(statement.text[:MAX_SENTENCE].split()[:6])
    reading = Reading(name=name, undecided=f"the sentence is longer than {MAX_SENTENCE:,} characters")
    return [placed(reading, statement, 0, len(statement.text), marker.severity)]


def _rule(statement: Statement, clause: Clause, context: Context, is_alone: bool) -> PromptRule | None:
    marker = _marker_of(clause, context)
    if marker is None:
        return None
    reading = _READERS[marker.force](View(clause, marker, context))
    start, end = (0, len(statement.text)) if is_alone else (clause.start, clause.end)
    return placed(reading, statement, start, end, _severity(marker, reading))


def _marker_of(clause: Clause, context: Context) -> Marker | None:
    """What the clause demands by; None where it allows, waives or only describes."""
    main = clause.main
    marker = find_marker(main.text, main.start, whole=context.sentence.text)
    reserved = clause.hanging("iff")
    if marker and marker.force is Force.WAIVE:
        return None
    if reserved and (marker is None or marker.force in (Force.PERMIT, Force.REQUIRE)):
        at = (marker.start, marker.end) if marker else (main.start, main.start)
        return Marker(Force.ONLY, *at, "only", "high") if main.text.strip(" ,.") else None
    if marker and marker.force is Force.PERMIT:
        return None
    if marker is None and (no := _NO.match(main.text)) and bind(main.text, context):
        return Marker(Force.FORBID, main.start + no.start(1), main.start + no.end(1), "no", "high")
    if marker is None and (verb := imperative_at(main.text)):
        start, end = main.start + verb[0], main.start + verb[1]
        return Marker(Force.REQUIRE, start, end, context.sentence.text[start:end].lower(), "medium")
    return marker


def _severity(marker: Marker, reading: Reading) -> RuleSeverity:
    if reading.tools and marker.severity == "high" and all(is_destroying(tool) for tool in reading.tools):
        return "critical"
    return marker.severity


def placed(reading: Reading, statement: Statement, start: int, end: int, severity: RuleSeverity) -> PromptRule:
    """The rule at its place in the prompt, without the blanks and commas around it."""
    text = statement.text[start:end]
    start += len(text) - len(text.lstrip(" ,;"))
    end -= len(text) - len(text.rstrip(" ,;"))
    rule_id = slug(reading.name)
    description = " ".join(statement.text[start:end].split())
    items = tuple(
        _item(draft, rule_id if index == 0 else f"{rule_id}-{index + 1}", description, severity)
        for index, draft in enumerate(reading.drafts)
    )
    return PromptRule(
        rule_id=rule_id,
        description=description,
        start=statement.start + start,
        end=statement.start + end,
        trigger=reading.trigger,
        required_action=reading.required,
        forbidden_action=reading.forbidden,
        severity=severity,
        tier=reading.tier,
        confidence=reading.confidence,
        items=items,
        undecided=reading.undecided,
    )


def _item(draft: Draft, id: str, description: str, severity: RuleSeverity) -> EngineItem:
    item = {
        "id": id,
        "kind": draft.kind,
        "severity": ENGINE_SEVERITY[severity],
        "description": description,
        "params": draft.params,
    }
    return EngineItem(item, draft.aspect)


def renamed(rule: PromptRule, rule_id: str) -> PromptRule:
    """The same rule under another id, its items too."""
    items = tuple(
        EngineItem({**one.item, "id": rule_id if index == 0 else f"{rule_id}-{index + 1}"}, one.aspect)
        for index, one in enumerate(rule.items)
    )
    return replace(rule, rule_id=rule_id, items=items)
