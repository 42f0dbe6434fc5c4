"""Turning a shadow rule on: one word of the file is changed, and everything else stays byte for byte."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.diagnostic import Span
from bylaw.model.rule import GuardPolicy, GuardSet
from bylaw.rules.files import Format, format_of
from bylaw.rules.loader import parse_documents, parse_guard, strip_spans
from bylaw.rules.nodes import ListNode, MapNode, Node, Problems, ScalarNode, Source, Unreadable


class NotPromoted(ValueError):
    """The file is not changed; the argument says why."""


class Edit(Struct, frozen=True):
    line: int
    before: str
    after: str
    """the line, without and with the change"""
    text: str
    """the whole file with the change"""


def promotion(text: str, rule: str, *, file: str, format: Format | None = None) -> Edit:
    """The edit that turns the rule on. Raises NotPromoted where it is not clear what to change."""
    kind = format or format_of(file)
    base = Path(file).parent
    before = parse_guard(text, file=file, format=kind, base=base)
    if not before.ok:
        raise NotPromoted(f"{file}: the file has errors; `bylaw lint {file}` shows them")
    mark = text[: len(text) - len(text.removeprefix("\ufeff"))]
    place, word = _find_mode(_find_rule(text, rule, file, kind), rule, file)
    plain = place.source.text  # without the mark that some editors put first
    changed = mark + plain[: place.start] + _quote_like(place, word) + plain[place.end :]
    after = parse_guard(changed, file=file, format=kind, base=base)
    if not after.ok or _comparable_policies(after) != _comparable_policies(before, turned_on=rule):
        raise NotPromoted(f"{file}: changing `{place.raw}` would change more than `{rule}`; edit the file by hand")
    span = place.span
    return Edit(span.line, _line_at(text, span.line), _line_at(changed, span.line), changed)


def _line_at(text: str, line: int) -> str:
    source = Source("", text)
    return source.excerpt(Span("", line, 1, line, 1))[0]


def _find_rule(text: str, rule: str, file: str, kind: Format) -> MapNode:
    source = Source(file, text)
    nodes: list[Node] = []
    with contextlib.suppress(Unreadable):
        nodes = parse_documents(source, Problems(source), kind)
    found = [one for root in nodes for one in _rules(root, rule)]
    if not found:
        raise NotPromoted(f"{file}: there is no rule `{rule}`")
    if len(found) > 1:
        lines = ", ".join(str(one.span.line) for one in found)
        raise NotPromoted(f"{file}: `{rule}` is the id of several rules (lines {lines}); edit the file by hand")
    return found[0]


def _rules(node: Node, rule: str) -> Iterator[MapNode]:
    if isinstance(node, ListNode):
        for item in node.items:
            yield from _rules(item, rule)
    elif isinstance(node, MapNode):
        id = node.entries.get("id")
        if id is not None and isinstance(id.value, ScalarNode) and id.value.value == rule and "then" in node.entries:
            yield node
        for entry in node.entries.values():
            yield from _rules(entry.value, rule)


def _find_mode(node: MapNode, rule: str, file: str) -> tuple[ScalarNode, str]:
    mode, flag = node.entries.get("mode"), node.entries.get("shadow")
    if mode is not None and isinstance(mode.value, ScalarNode) and mode.value.value == "shadow":
        return mode.value, "enforce"
    if flag is not None and isinstance(flag.value, ScalarNode) and flag.value.value is True:
        return flag.value, "false"
    raise NotPromoted(f"{file}:{node.span.line}: `{rule}` is not in shadow")


def _quote_like(place: ScalarNode, word: str) -> str:
    """In the quotes that the old word had."""
    raw = place.raw
    quote = raw[0] if place.quoted and raw[:1] in "\"'" else ""
    if raw not in (f"{quote}shadow{quote}", f"{quote}true{quote}"):
        raise NotPromoted(f"line {place.span.line}: `{raw}` is not a plain `shadow` or `true`; edit the file by hand")
    return f"{quote}{word}{quote}"


def _comparable_policies(found: GuardSet, turned_on: str | None = None) -> list[GuardPolicy]:
    """The policies with a rule turned on, without the places of their rules, which a changed word moves."""
    plain = []
    for policy in map(strip_spans, found.policies):
        rules = tuple(replace(one, shadow=False) if one.rule.id == turned_on else one for one in policy.rules)
        plain.append(replace(policy, source=None, rules=rules))
    return plain
