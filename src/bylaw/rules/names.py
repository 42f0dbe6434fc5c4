"""The names of tools and stop reasons that rules hold, compared with those that exist.

A rule about a misspelt name never applies, so it is never broken: nobody sees it. Names are found in the lowered rule,
whatever kind it has and wherever they stand: in calls, formulas, conditions and predicates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from bylaw.model.condition import Condition
from bylaw.model.demand import Calls, StopReasonIn
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.predicate import CountOver, ToolIn
from bylaw.model.rule import Rule
from bylaw.model.source import Span
from bylaw.model.temporal import ResultOf, StopsFor, ToolIs
from bylaw.rules.messages import near_name, quote

STOP_REASONS = frozenset(
    (
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"),
        *("stop", "length", "tool_calls", "content_filter", "function_call"),
        *("error", "incomplete", "completed", "cancelled", "unknown"),
    )
)
"""what the usual providers report"""


class Name(Struct, frozen=True):
    """A name that a rule holds."""

    text: str
    of: Literal["tool", "stop reason"] = "tool"
    is_pattern: bool = False
    """whether `*`, `?` and `[…]` make it a pattern there"""
    instead: str = "name the tools one by one"
    """what to write where a pattern is not taken"""


def names_in(part: Any) -> Iterator[Name]:
    """The names inside a rule, or inside any part of one."""
    match part:
        case Calls(tools=names) | ToolIs(names=names) | ResultOf(names=names):
            yield from (Name(name, is_pattern=True) for name in names)
        case ToolIn(names=names):
            yield from (Name(name, instead="write `tool_name_regex`") for name in names)
        case CountOver(tool=str(name)):
            yield Name(name)
        case StopReasonIn(allowed=reasons):
            yield from (Name(reason, "stop reason") for reason in reasons)
        case StopsFor(reason=reason):
            yield Name(reason, "stop reason")
        case Condition():
            yield from _compared(part)
    if isinstance(part, Struct):
        for field in part.__struct_fields__:
            yield from names_in(getattr(part, field))
    elif isinstance(part, tuple):
        for one in part:
            yield from names_in(one)


def _compared(condition: Condition) -> Iterator[Name]:
    """The names that a condition compares a tool's name or a stop reason with."""
    path, value = condition.path, condition.value
    values = value if isinstance(value, list | tuple) else [value]
    texts = [one for one in values if isinstance(one, str)] if condition.op in ("==", "!=", "in", "not_in") else []
    if path.field in ("tool_calls", "tools") and path.rest[-1:] == ("name",):
        yield from (Name(text, instead="write `op: matches` and a regular expression") for text in texts)
    elif path.field == "stop_reason":
        yield from (Name(text, "stop reason") for text in texts)


class Existing(Struct):
    """The names that exist, and where: `in the trace`, `in `tools``."""

    tools: Collection[str] = ()
    stop_reasons: Collection[str] = ()
    where: str = "in the trace"
    is_complete: bool = False
    """whether every other name is wrong, near or not"""


def doubtful_names(rules: Iterable[Rule], existing: Existing) -> list[Diagnostic]:
    """A warning for each name in a rule that is probably not the one that was meant. Each rule's names once."""
    found: list[Diagnostic] = []
    for rule in rules:
        for name in dict.fromkeys(names_in((rule.demand, rule.when))):
            warning = _stop_reason(rule, name, existing) if name.of != "tool" else _tool(rule, name, existing)
            if warning is not None:
                found.append(warning)
    return found


def _tool(rule: Rule, name: Name, existing: Existing) -> Diagnostic | None:
    text, tools = name.text, existing.tools
    is_glob = not {"*", "?", "["}.isdisjoint(text)
    if text in tools or (is_glob and name.is_pattern and _matches_any(text, tools, existing)):
        return None
    if is_glob and not name.is_pattern:
        message = f"`{rule.id}` takes {quote(text)} as the name of one tool, and not as a pattern"
        return _warning(rule, code="glob-as-name", message=message, help=name.instead)
    near = near_name(text, tools) if tools else None
    if near is None and not (existing.is_complete and tools):
        return None
    message = f"`{rule.id}` names the tool {quote(text)}, which is not {existing.where}"
    help = f"did you mean `{near}`?" if near else "add it there, or correct the name"
    return _warning(rule, code="unlikely-tool", message=message, help=help)


def _matches_any(pattern: str, tools: Collection[str], existing: Existing) -> bool:
    return not existing.is_complete or any(fnmatchcase(tool, pattern) for tool in tools)


def _stop_reason(rule: Rule, name: Name, existing: Existing) -> Diagnostic | None:
    if name.text in existing.stop_reasons or name.text in STOP_REASONS:
        return None
    near = near_name(name.text, {*existing.stop_reasons, *STOP_REASONS})
    if near is None:
        return None
    message = f"`{rule.id}` names the stop reason {quote(name.text)}, which no model reports"
    return _warning(rule, code="unlikely-stop-reason", message=message, help=f"did you mean `{near}`?")


def _warning(rule: Rule, *, code: str, message: str, help: str) -> Diagnostic:
    file = "<rules>" if rule.span is None else rule.span.file
    return Diagnostic(code=code, message=message, severity="warning", file=file, span=rule.span, help=help)


class RulePlace(Struct, frozen=True):
    """Where a rule begins, as the place of a problem."""

    head: Span
