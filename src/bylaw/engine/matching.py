"""Which calls and texts a rule means: names and globs, texts, and predicates on a call.

Globs and regexes run on RE2: linear time for any pattern. A predicate is true, false, or unknown (None).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from unicodedata import normalize

import re2

from bylaw.engine.values import UNREADABLE, Comparison, compile_test
from bylaw.model.condition import AllOf, AnyOf, ArgumentIs, CountOver, Nothing, NotOf, Predicate, ToolIn, ToolMatches
from bylaw.model.demand import Calls
from bylaw.model.events import ToolCall
from bylaw.model.temporal import TextHas
from bylaw.text.regex import Matches, compile_regex, compile_search

Find = Callable[[str], tuple[int, int] | None]
"""text → start and end of the first match"""


def is_glob(name: str) -> bool:
    return any(character in name for character in "*?[")


def compile_names(calls: Calls) -> Matches:
    """Whether a tool name is one of the names or fits one of the globs."""
    exact = frozenset(calls.tools)  # a name that looks like a glob is still a name
    globs = [compile_search(_glob_to_regex(name)) for name in calls.tools if is_glob(name)]
    if not globs:
        return exact.__contains__
    return lambda name: name in exact or any(fits(name) for fits in globs)


def compose(text: str) -> str:
    """NFC: `é` may be recorded as one character or as two. The same string where it is composed already."""
    return text if text.isascii() else normalize("NFC", text)


def compile_text(probe: TextHas) -> Find:
    """A search in any text; both sides are composed (NFC)."""
    find = compile_composed(probe)
    return lambda text: find(compose(text))


def compile_composed(probe: TextHas) -> Find:
    """A search in text that is composed already. For literals a plain substring search beats any regex engine."""
    wanted = compose(probe.text)
    if probe.regex:
        return _regex_finder(wanted, probe.ignore_case)
    if probe.ignore_case:
        find = _finder(wanted.casefold())
        return lambda text: find(text.casefold())
    return _finder(wanted)


def _finder(wanted: str) -> Find:
    def find(text: str) -> tuple[int, int] | None:
        if wanted not in text:
            return None
        start = text.index(wanted)
        return start, start + len(wanted)

    return find


def _regex_finder(pattern: str, ignore_case: bool) -> Find:
    search = compile_regex(pattern, ignore_case=ignore_case).search

    def find(text: str) -> tuple[int, int] | None:
        match = search(text)
        return None if match is None else match.span()

    return find


def _glob_to_regex(glob: str) -> str:
    parts, position = [], 0
    while position < len(glob):
        part, position = _next_part(glob, position)
        parts.append(part)
    return rf"\A(?s:{''.join(parts)})\z"


_WILDCARDS = {"*": ".*", "?": "."}


def _next_part(glob: str, position: int) -> tuple[str, int]:
    """The regex for the part of the glob at `position`, and the position of the next part."""
    character = glob[position]
    if character == "[":
        # a bracket that comes first in a class is a member of it: []] and [!]]
        start = position + (2 if glob.startswith("[!", position) else 1)
        close = glob.find("]", start + 1)
        members = _class(glob[position + 1 : close]) if close > 0 else None
        if members is not None:
            return members, close + 1
    return _WILDCARDS.get(character) or re2.escape(character), position + 1


def _class(inside: str) -> str | None:
    """A character class, or None if it is not a valid one (a reversed range): then the bracket is a literal."""
    escaped = inside.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    regex = f"[{'^' if inside.startswith('!') else ''}{escaped}]"
    try:
        compile_regex(regex)
    except re2.error:
        return None
    return regex


# -- predicates on a call ----------------------------------------------------------------------------------------------

Counts: TypeAlias = Sequence[int]
"""what each counter of the predicate shows, in the order of `counts`"""
Test: TypeAlias = Callable[[ToolCall, Counts], bool | None]
Explain: TypeAlias = Callable[[ToolCall, Counts], list[str]]


def compile_predicate(predicate: Predicate, counters: Sequence[CountOver]) -> Test:
    match predicate:
        case ToolIn(names=names):
            known = frozenset(names)
            return lambda call, counts: call.name in known
        case ToolMatches(pattern=pattern):
            search = compile_search(pattern)
            return lambda call, counts: search(call.name)
        case ArgumentIs(path=path, op=op, value=value):
            return _compile_argument_test(predicate, compile_test(path, op, value))
        case CountOver(value=value):
            number = counters.index(predicate)
            return lambda call, counts: counts[number] > value
        case NotOf(of=of):
            return _negate_test(compile_predicate(of, counters))
        case AllOf(of=parts):
            return _join_tests([compile_predicate(part, counters) for part in parts], decisive=False)
        case AnyOf(of=parts):
            return _join_tests([compile_predicate(part, counters) for part in parts], decisive=True)
        case Nothing():
            return lambda call, counts: False


def compile_where(predicate: Predicate) -> Callable[[ToolCall], bool | None]:
    """Whether a call matches; None if its arguments were not recorded or cannot be compared."""
    test = compile_predicate(predicate, ())
    return lambda call: test(call, ())


def compile_calls(calls: Calls) -> Callable[[ToolCall], bool | None]:
    """Whether a call is one of these, by its name and its arguments; None where the arguments do not tell."""
    matches = compile_names(calls)
    if calls.where is None:
        return lambda call: matches(call.name)
    test = compile_where(calls.where)
    return lambda call: matches(call.name) and test(call)


def unknown_where(calls: int) -> str:
    of = "1 call" if calls == 1 else f"{calls} calls"
    return f"the arguments of {of} cannot be compared with `where`"


def describe_calls(calls: Calls) -> str:
    """The tools, and what `where` says about their arguments."""
    return " or ".join(f"`{name}`" for name in calls.tools) + describe_where(calls)


def describe_where(calls: Calls) -> str:
    return "" if calls.where is None else f" where {_describe(calls.where)}"


def _describe(predicate: Predicate) -> str:
    match predicate:
        case ArgumentIs(name=name):
            return name
        case AllOf(of=parts):
            return " and ".join(map(_describe, parts))
        case AnyOf(of=parts):
            return f"({' or '.join(map(_describe, parts))})"
        case NotOf(of=of):
            return f"not ({_describe(of)})"
        case _:
            return type(predicate).__name__


class RedactedArguments(dict[str, Any]):
    """Partly redacted arguments, with the results of the predicates on them before redaction."""

    __slots__ = ("truths",)

    def __init__(self, known: dict[str, Any], truths: Mapping[ArgumentIs, bool | None]) -> None:
        super().__init__(known)
        self.truths = truths


def _compile_argument_test(predicate: ArgumentIs, test: Comparison) -> Test:
    def tested(call: ToolCall, counts: Counts) -> bool | None:
        recorded = call.arguments
        if type(recorded) is dict:
            return test(recorded)
        if type(recorded) is RedactedArguments and predicate in recorded.truths:
            return recorded.truths[predicate]
        return test(arguments(call))

    return tested


def arguments(call: ToolCall) -> Any:
    """The arguments as a mapping. Those that were not recorded may be any: an attempt without arguments has `{}`."""
    return call.arguments if isinstance(call.arguments, dict) else UNREADABLE


def _negate_test(test: Test) -> Test:
    def opposite(call: ToolCall, counts: Counts) -> bool | None:
        answer = test(call, counts)
        return None if answer is None else not answer

    return opposite


def _join_tests(tests: list[Test], *, decisive: bool) -> Test:
    if len(tests) == 2:
        return _join_two_tests(*tests, decisive=decisive)

    def joined(call: ToolCall, counts: Counts) -> bool | None:
        answer: bool | None = not decisive
        for test in tests:
            one = test(call, counts)
            if one is decisive:
                return decisive
            if one is None:
                answer = None
        return answer

    return joined


def _join_two_tests(left: Test, right: Test, *, decisive: bool) -> Test:
    """The common group, without a loop."""

    def paired(call: ToolCall, counts: Counts) -> bool | None:
        one = left(call, counts)
        if one is decisive:
            return decisive
        other = right(call, counts)
        return None if one is None and other is not decisive else other

    return paired


def tools_of(predicate: Predicate) -> frozenset[str] | None:
    """The tools that can match at all; None where any may."""
    match predicate:
        case ToolIn(names=names):
            return frozenset(names)
        case Nothing():
            return frozenset()
        case AllOf(of=parts):
            named = [names for names in map(tools_of, parts) if names is not None]
            return frozenset.intersection(*named) if named else None
        case AnyOf(of=parts):
            every = [tools_of(part) for part in parts]
            known = [names for names in every if names is not None]
            return frozenset().union(*known) if len(known) == len(every) else None
        case _:
            return None


def compile_explanation(predicate: Predicate, counters: Sequence[CountOver]) -> Explain:
    """What made the predicate match, part by part, in the user's own words."""
    match predicate:
        case AllOf(of=parts) | AnyOf(of=parts):
            inner = [compile_explanation(part, counters) for part in parts]
            return lambda call, counts: [text for explain in inner for text in explain(call, counts)]
        case _:
            return _compile_explain(predicate, compile_predicate(predicate, counters), counters)


def _compile_explain(predicate: Predicate, test: Test, counters: Sequence[CountOver]) -> Explain:
    def explain(call: ToolCall, counts: Counts) -> list[str]:
        truth = test(call, counts)
        return [] if truth is False else [_describe_truth(predicate, truth, counts, counters)]

    return explain


def _describe_truth(predicate: Predicate, truth: bool | None, counts: Counts, counters: Sequence[CountOver]) -> str:
    match predicate:
        case NotOf(of=ToolIn()):
            text = "not tool_name_in"
        case NotOf():
            return "not (…)" if truth else "not (…) (cannot be compared)"
        case ToolIn():
            text = "tool_name_in"
        case ToolMatches(pattern=pattern):
            text = f"tool_name_regex {pattern}"
        case CountOver(over=over, value=value, tool=tool):
            of = f" of {tool}" if tool else ""
            text = f"attempt {counts[counters.index(predicate)]}{of} in the {over}, over {value}"
        case ArgumentIs(name=name):
            text = name
        case _:
            text = type(predicate).__name__
    return text if truth else f"{text} (cannot be compared)"
