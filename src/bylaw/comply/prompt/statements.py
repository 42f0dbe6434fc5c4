"""A sentence → the rules that its grammar states. `lists` reads those that introduce a list.

`clauses` divides a sentence into clauses, `markers` finds what each of them does, and `prohibitions` or `obligations`
reads it.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from bylaw.comply.model import ENGINE_SEVERITY, EngineItem, PromptRule, RuleSeverity, Tier
from bylaw.comply.prompt.binding import bind, is_destructive, names_tool
from bylaw.comply.prompt.certainty import LESS_THAN_CERTAIN, is_plain
from bylaw.comply.prompt.clauses import MAX_SENTENCE, Clause, Sentence, read_clauses, read_sentence
from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.lines import limits_scope
from bylaw.comply.prompt.markers import Force, Marker, find_marker, imperative_at, is_denied_twice
from bylaw.comply.prompt.obligations import read_obligation, read_reservation
from bylaw.comply.prompt.prohibitions import read_prohibition
from bylaw.comply.prompt.readings import NO_TIME, NO_TOOL, Reading, View, slug
from bylaw.comply.prompt.unread_sentences import (
    carries_demand,
    forbids_by_label,
    is_passed_over,
    only_permits,
    read_label,
    unread_reading,
)
from bylaw.comply.prompt.vocabulary import Tools, any_case
from bylaw.comply.prompt.wording import read_wording

NO_EVENT = "it ties a tool to something that no event shows"
_NO = any_case(r"\W*(no)\s+(?!one\b|need\b|problem|longer\b|matter\b|doubt|worries|such\b|more\b|idea\b)\W*\w")
_FINITE = any_case(r"\b(?:is|are|was|were|has|have|had|will|can|does|do|did|means|exists?)\b")
"""`no order is lost` tells something, `no refunds` forbids"""
_LIMIT = any_case(r"\W*(?:no more than|at most|max(?:imum)?(?: of)?|up to|fewer than|less than) [\w]+ \w+")
_READERS = {Force.FORBID: read_prohibition, Force.REQUIRE: read_obligation, Force.ONLY: read_reservation}
_IF_NEEDED = any_case(r"\W*(?:(?:if|when|where|as) )?(?:needed|necessary|possible|appropriate|applicable|required)\b")
"""`call A and if needed B`: `needed B` is not a condition"""
_NEVER, _NEVER_CALL = "Never ", "Never call "
_DESCRIBED = re.compile(r"(?P<name>[`*]*\w+[`*]*)(?::| [-\u2013\u2014]| \() ?(?P<what>.+)")
"""`drop_table: deletes a table`"""
_WEAK_CONFIDENCE = 0.7
"""of `try to` and `prefer`"""
_LABELLED = Marker(Force.FORBID, 0, 0, "forbidden", "high")


def read_alone(statement: Statement, tools: Tools) -> list[PromptRule]:
    """The rules of a sentence, read with single blanks: a wrapped line is indented in the middle of a sentence."""
    if "  " not in statement.text and "\n" not in statement.text:
        return _read_flat(statement, tools)
    places = [
        at for at, one in enumerate(statement.text) if not (one.isspace() and statement.text[at - 1 : at].isspace())
    ]
    flat = "".join(" " if statement.text[at].isspace() else statement.text[at] for at in places)
    found = _read_flat(replace(statement, text=flat), tools)
    start = statement.start
    return [
        replace(rule, start=start + places[rule.start - start], end=start + places[rule.end - start - 1] + 1)
        for rule in found
    ]


def _read_flat(statement: Statement, tools: Tools) -> list[PromptRule]:
    if len(statement.text) > MAX_SENTENCE:
        return _leave_unread(statement)
    sentence = read_sentence(statement.text, tools, statement.tool)
    if sentence is None:
        return []
    if labelled := read_label(sentence):
        return [place_rule(labelled, statement, _severity(_LABELLED, labelled))]
    if forbids_by_label(sentence) and ";" in sentence.masked:
        pieces = re.finditer(r"[^;]+", statement.text[sentence.body :])
        places = [(statement.start + sentence.body + one.start(), one[0]) for one in pieces if one[0].strip(" .")]
        parts = [
            Statement(text.strip(), at + len(text) - len(text.lstrip()), at + len(text.rstrip())) for at, text in places
        ]
        for part in parts:
            first = re.match(r"[`*]*(\w+)", part.text)
            part.forbidden = sentence.text[: sentence.body].strip() if first and first[1] in tools.specs else ""
        return [rule for part in parts for rule in read_forbidden_item(part, tools)]
    rules: list[PromptRule] = []
    clauses = read_clauses(sentence)
    for clause in clauses:
        marker = marker_of(clause, sentence)
        place = (0, len(statement.text)) if len(clauses) == 1 else _place_of(clause, sentence)
        if marker is not None:
            reading = _read_clause(View(clause, marker, sentence))
            rules.append(place_rule(reading, statement, _severity(marker, reading), place))
        elif is_passed_over(clause, sentence):
            rules.append(place_rule(unread_reading(statement.text), statement, "medium", place))
    if not rules and statement.tool is None and carries_demand(sentence.masked) and not only_permits(sentence):
        return [place_rule(unread_reading(statement.text, names_tool=False), statement, "medium")]
    return rules


def _place_of(clause: Clause, sentence: Sentence) -> tuple[int, int]:
    """With the words around it that limit nothing, which are blanks in the masked text: `under any circumstances`."""
    before, behind = sentence.masked[: clause.start], sentence.masked[clause.end :]
    start = max(len(before.rstrip()), sentence.body)
    end = clause.end + len(behind) - len(behind.lstrip())
    return min(start, clause.start), len(sentence.text[:end].rstrip())


def _read_clause(view: View) -> Reading:
    """A rule that the engine cannot decide has the words of its clause as trigger and action."""
    if is_denied_twice(view.marker, view.subject, view.action):
        reading = Reading(name=view.name, undecided="one word of it denies another")
    elif any(_IF_NEEDED.match(part.text) for part in view.clause.parts):
        reading = Reading(name=view.name, undecided=NO_TIME)
    else:
        reading = _READERS[view.marker.force](view)
    if reading.drafts:
        is_open = reading.bounds and reading.tier is Tier.CERTAIN and not is_plain(view, reading)
        ceiling = _WEAK_CONFIDENCE if view.marker.severity == "low" else LESS_THAN_CERTAIN if is_open else 1.0
        return replace(reading, ceiling=min(reading.ceiling, ceiling))
    if reading.undecided == NO_TOOL and names_tool(view.whole, view.sentence):
        reading = replace(reading, undecided=NO_EVENT)
    words = read_wording(view)
    reason = reading.undecided and view.unmask(reading.undecided)
    return replace(reading, undecided=reason, trigger=words.trigger, required=words.required, forbidden=words.forbidden)


def list_unread(statement: Statement, tools: Tools) -> list[PromptRule]:
    """A sentence in the section of a tool that gave no rule, if it names a tool and is not understood."""
    sentence = read_sentence(statement.text[:MAX_SENTENCE], tools, statement.tool)
    if sentence is None or not any(is_passed_over(clause, sentence) for clause in read_clauses(sentence)):
        return []
    return [place_rule(unread_reading(statement.text), statement, "medium")]


def _leave_unread(statement: Statement) -> list[PromptRule]:
    """A sentence that is too long to be read states a rule all the same, if its beginning does."""
    marker = find_marker(statement.text[:MAX_SENTENCE])
    if marker is None or marker.force not in _READERS:
        return []
    name = " ".join(statement.text[:MAX_SENTENCE].split()[:6])
    reading = Reading(name=name, undecided=f"the sentence is longer than {MAX_SENTENCE:,} characters")
    return [place_rule(reading, statement, marker.severity)]


def marker_of(clause: Clause, sentence: Sentence) -> Marker | None:
    """The marker of a clause that forbids, requires or restricts; None if it permits, waives or only describes."""
    main = clause.main
    marker = find_marker(main.text, main.start, whole=sentence.text)
    force = marker.force if marker else None
    if force is Force.WAIVE:
        return None
    if clause.part("iff") and force in (None, Force.PERMIT, Force.REQUIRE):
        start, end = (marker.start, marker.end) if marker else (main.start, main.start)
        return Marker(Force.ONLY, start, end, "only", "high") if main.text.strip(" ,.") else None
    if force is Force.PERMIT:
        return None
    if marker is None and _LIMIT.match(main.text):
        return Marker(Force.REQUIRE, main.start, main.start, "at most", "medium")
    if marker is None and (no := _NO.match(main.text)) and (not _FINITE.search(main.text) or bind(main.text, sentence)):
        return Marker(Force.FORBID, main.start + no.start(1), main.start + no.end(1), "no", "high")
    if marker is None and (verb := imperative_at(main.text)):
        start, end = main.start + verb[0], main.start + verb[1]
        return Marker(Force.REQUIRE, start, end, sentence.text[start:end].lower(), "medium")
    return marker


def _severity(marker: Marker, reading: Reading) -> RuleSeverity:
    if reading.forbids and marker.severity == "high" and all(map(is_destructive, reading.forbids)):
        return "critical"
    return marker.severity


def place_rule(
    reading: Reading, statement: Statement, severity: RuleSeverity, place: tuple[int, int] | None = None
) -> PromptRule:
    """The rule at its place in the statement, or over all of it, without the blanks and commas around it."""
    start, end = place or (0, len(statement.text))
    text = statement.text[start:end]
    start += len(text) - len(text.lstrip(" ,;"))
    end -= len(text) - len(text.rstrip(" ,;"))
    rule_id = slug(reading.name)
    description = " ".join(statement.text[start:end].split())
    items = []
    for number, draft in enumerate(reading.drafts, 1):
        item = {
            "id": rule_id if number == 1 else f"{rule_id}-{number}",
            "kind": draft.kind,
            "severity": ENGINE_SEVERITY[severity],
            "description": description,
            "params": draft.params,
        }
        items.append(EngineItem(item, draft.aspect))
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
        items=tuple(items),
        undecided=reading.undecided,
    )


def read_forbidden_item(part: Statement, tools: Tools, introduction: str = "") -> list[PromptRule]:
    """An item of a list that forbids is read as if it began with `never`, unless it forbids by itself."""
    own = find_marker(part.text[:MAX_SENTENCE])
    if own and own.force is Force.FORBID:
        return read_alone(part, tools)
    name = part.text
    if part.forbidden and (described := _DESCRIBED.fullmatch(name)) and not limits_scope(described["what"]):
        name = described["name"]
    never = _NEVER_CALL if part.forbidden else _NEVER
    text = never + name[:1].lower() + name[1:]
    shifted = Statement(text, part.start - len(never), part.end, part.tool)
    said = f"{part.forbidden or introduction} {part.text}"
    return [
        describe(replace(rule, start=max(rule.start, part.start), end=part.end), said)
        for rule in read_alone(shifted, tools)
    ]


def describe(rule: PromptRule, said: str) -> PromptRule:
    """The rule with these words of the prompt."""
    said = " ".join(said.split())
    items = tuple(replace(one, item=one.item | {"description": said}) for one in rule.items)
    return replace(rule, description=said, items=items)
