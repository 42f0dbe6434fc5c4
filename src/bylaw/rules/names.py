"""The names of tools and stop reasons that rules hold, compared with those that exist.

A rule about a misspelt name never applies, so it is never broken and the mistake goes unnoticed. Names are found in the
lowered rule, for every kind and in every place: in calls, formulas, conditions and predicates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.model.condition import Condition, CountOver, ToolIn, ToolMatches
from bylaw.model.demand import Calls, StopReasonIn
from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.model.rule import Rule
from bylaw.model.temporal import ResultOf, StopsFor, ToolIs
from bylaw.rules.messages import near_name, quote
from bylaw.rules.nodes import Place, Problems

STOP_REASONS = frozenset(
    (
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"),
        *("stop", "length", "tool_calls", "content_filter", "function_call"),
        *("error", "incomplete", "completed", "cancelled", "unknown"),
    )
)
"""the stop reasons of the usual providers"""


How: TypeAlias = Literal["whole", "glob", "start", "end", "part"]


class RuleName(Struct, frozen=True):
    """A name that a rule holds."""

    text: str
    of: Literal["tool", "stop reason"] = "tool"
    how: How = "whole"
    """what it is compared with: the whole of a tool's name or a part of it; in a `glob`, `*`, `?` and `[…]` count"""
    instead: str = "name the tools one by one"
    """what to write where a pattern is not taken"""
    is_sure: bool = True
    """whether it can be nothing but the name of a tool"""

    @property
    def has_wildcards(self) -> bool:
        return not {"*", "?", "["}.isdisjoint(self.text)

    @property
    def is_plain(self) -> bool:
        """Whether it is one tool's name, written out."""
        return self.of == "tool" and (self.how == "whole" or (self.how == "glob" and not self.has_wildcards))

    def fits(self, tools: Collection[str]) -> bool:
        """Whether one of the tools is meant by it."""
        if self.is_plain:
            return self.text in tools
        return any(_FITS[self.how](tool, self.text) for tool in tools)


_FITS: dict[How, Callable[[str, str], bool]] = {
    "whole": str.__eq__,
    "glob": fnmatchcase,
    "start": str.startswith,
    "end": str.endswith,
    "part": str.__contains__,
}


def names_in(part: Any) -> Iterator[RuleName]:
    """The names inside a rule, or inside any part of one."""
    match part:
        case Calls(tools=names) | ToolIs(names=names) | ResultOf(names=names):
            yield from (RuleName(name, how="glob") for name in names)
        case ToolIn(names=names):
            yield from (RuleName(name, instead="write `tool_name_regex`") for name in names)
        case ToolMatches(pattern=pattern):
            yield from _in_regex(pattern)
        case CountOver(tool=str(name)):
            yield RuleName(name)
        case StopReasonIn(allowed=reasons):
            yield from (RuleName(reason, "stop reason") for reason in reasons)
        case StopsFor(reason=reason):
            yield RuleName(reason, "stop reason")
        case Condition():
            yield from _compared_names(part)
    if isinstance(part, Struct):
        for field in part.__struct_fields__:
            yield from names_in(getattr(part, field))
    elif isinstance(part, tuple):
        for one in part:
            yield from names_in(one)


_OPERATORS: dict[str, How] = {
    **dict.fromkeys(("==", "!=", "in", "not_in"), "whole"),
    **{"starts_with": "start", "ends_with": "end", "contains": "part", "not_contains": "part"},
}


def _compared_names(condition: Condition) -> Iterator[RuleName]:
    """The names that a condition compares a tool's name or a stop reason with."""
    path, op = condition.path, condition.op
    values = condition.value if isinstance(condition.value, list | tuple) else [condition.value]
    texts = [one for one in values if isinstance(one, str)]
    how = _OPERATORS.get(op)
    if path.field in ("tool_calls", "tools", "content") and path.rest[-1:] == ("name",) and len(path.rest) < 4:
        if how is not None:
            yield from (RuleName(text, how=how, instead=_REGEX) for text in texts)
        elif op == "matches":
            yield from (name for text in texts for name in _in_regex(text))
    elif path.field == "tool_calls" and how == "part" and len(path.rest) < 2:
        yield from (RuleName(text, how=how) for text in texts)
    elif path.field == "content" and how == "part" and len(path.rest) < 2:
        # blocks are searched in their text too: only what is written like a name may be one
        yield from (RuleName(text, how=how, is_sure=False) for text in texts if _WRITTEN_AS_NAME.fullmatch(text))
    elif path.field == "stop_reason" and how == "whole":
        yield from (RuleName(text, "stop reason") for text in texts)


_REGEX = "write `op: matches` and a regular expression"
_WRITTEN_AS_NAME = re.compile(r"\w+([_-]\w+|[a-z0-9][A-Z]\w*)")
_PLAIN_REGEX = re.compile(r"(\^?)(?:\((?:\?:)?([\w|-]+)\)|([\w-]+))(\$?)")


def _in_regex(pattern: str) -> Iterator[RuleName]:
    """The names in a regular expression that is one, or some of them with `|` between: `^(pay|refund)$`."""
    parts = [pattern] if "(" in pattern else pattern.split("|")
    found = [_PLAIN_REGEX.fullmatch(part) for part in parts]
    if not all(found):
        return
    for one in filter(None, found):
        start, group, alone, end = one.groups()
        how: How = "whole" if start and end else "start" if start else "end" if end else "part"
        yield from (RuleName(text, how=how) for text in (group or alone).split("|") if text)


class ExistingNames(Struct):
    """The names that exist, and where: `in the trace`, `in `tools``."""

    tools: Collection[str] = ()
    stop_reasons: Collection[str] = ()
    where: str = "in the trace"
    is_complete: bool = False
    """whether every other name is wrong, near or not"""


def doubtful_names(rules: Iterable[Rule], existing: ExistingNames) -> list[Diagnostic]:
    """A warning for each name in a rule that is probably not the one that was meant. Each rule's names once."""
    found: list[Diagnostic] = []
    for rule in rules:
        for name in dict.fromkeys(names_in((rule.demand, rule.when))):
            warning = _stop_reason(rule, name, existing) if name.of != "tool" else _tool(rule, name, existing)
            if warning is not None:
                found.append(warning)
    return found


def _tool(rule: Rule, name: RuleName, existing: ExistingNames) -> Diagnostic | None:
    text, tools = name.text, existing.tools
    if name.has_wildcards and name.how == "whole":
        message = f"`{rule.id}` takes {quote(text)} as the name of one tool, and not as a pattern"
        return rule_warning(rule, code="glob-as-name", message=message, help=name.instead)
    if not tools or name.fits(tools):
        return None
    near = near_name(text, tools) if name.is_plain else _near_part(name, tools)
    if near is None and not (existing.is_complete and name.is_sure):
        return None
    named = f"the tool {quote(text)}, which is not" if name.is_plain else f"tools by {quote(text)}, and none is"
    message = f"`{rule.id}` names {named} {existing.where}"
    help = f"did you mean `{near}`?" if near else "add it there, or correct the name"
    return rule_warning(rule, code="unlikely-tool", message=message, help=help)


def _near_part(name: RuleName, tools: Collection[str]) -> str | None:
    """What a pattern or a part of a name was probably meant to be, by the tools whose words are nearly the same."""
    if name.how != "glob":
        return near_name(name.text, _runs(tools, start=name.how == "start", end=name.how == "end"))
    head, tail = re.split(r"[*?\[]", name.text, maxsplit=1)[0], re.split(r"[*?\]]", name.text)[-1]
    middle = name.text[len(head) : len(name.text) - len(tail)]
    heads = _nearest(head, _runs(tools, start=True))
    tails = _nearest(tail, _runs(tools, end=True))
    meant = f"{heads}{middle}{tails}"
    return meant if RuleName(meant, how="glob").fits(tools) else None


def _nearest(text: str, runs: Collection[str]) -> str:
    """The text as it is, unless only nearly the same occurs."""
    if not text or text in runs:
        return text
    ends = text[0].isalnum(), text[-1].isalnum()
    return near_name(text, {run for run in runs if (run[0].isalnum(), run[-1].isalnum()) == ends}) or text


def _runs(tools: Collection[str], *, start: bool = False, end: bool = False) -> set[str]:
    """Whole words of the tools' names that follow one another, with the separators at their ends and without: from the
    start of a name, up to its end, or anywhere in it."""
    found: set[str] = set()
    for tool in tools:
        cuts = [0, *(cut for gap in re.finditer(r"[\W_]+", tool) for cut in gap.span()), len(tool)][:_MOST_CUTS]
        found.update(tool[a:b] for a in (cuts[:1] if start else cuts) for b in (cuts[-1:] if end else cuts) if a < b)
    return found


_MOST_CUTS = 20


def _stop_reason(rule: Rule, name: RuleName, existing: ExistingNames) -> Diagnostic | None:
    if name.text in existing.stop_reasons or name.text in STOP_REASONS:
        return None
    near = near_name(name.text, {*existing.stop_reasons, *STOP_REASONS})
    if near is None:
        return None
    message = f"`{rule.id}` names the stop reason {quote(name.text)}, which no model reports"
    return rule_warning(rule, code="unlikely-stop-reason", message=message, help=f"did you mean `{near}`?")


def rule_warning(rule: Rule, *, code: str, message: str, help: str) -> Diagnostic:
    """A warning at the place where the rule begins."""
    file = "<rules>" if rule.span is None else rule.span.file
    return Diagnostic(code=code, message=message, severity="warning", file=file, span=rule.span, help=help)


class RulePlace(Struct, frozen=True):
    """Where a rule begins, as the place of a problem."""

    head: Span


def warn_of_globs(tools: Iterable[str], at: Place, problems: Problems) -> None:
    """Names in a list of tools that look like patterns: each is one tool's name there."""
    for tool in tools:
        if RuleName(tool).has_wildcards:
            message = f"`tools` takes {quote(tool)} as the name of one tool, and not as a pattern"
            problems.warn(code="glob-as-name", message=message, at=at, help="name the tools one by one")
