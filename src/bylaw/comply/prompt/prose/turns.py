"""The shape of a turn: one call at a time, no text beside a call."""

from __future__ import annotations

import re

from bylaw.comply.prompt.prose.lowering import Draft, formula

_ONE_CALL = re.compile(
    r"\b(?:one|1|a single) (?:tool|function)(?: call| calls)?(?: \w+){0,3}? (?:at a time|at once|per (?:turn"
    r"|response|message|step)|in (?:a|one|each|any) (?:single )?(?:turn|response|message|step)|(?:each"
    r"|every) (?:turn|response|message|step))"
    r"|\b(?:tools?|tool calls|functions) (?:\w+ ){0,3}?one at a time\b"
    r"|\bone tool(?: call)? after (?:the other|another)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"\b(?:multiple|several|two|more than one|parallel|simultaneous|concurrent|many) (?:or more )?(?:tool"
    r"|function)s?(?: calls?)?\b|\b(?:tools?|functions?|tool calls) (?:\w+ ){0,2}?(?:in parallel"
    r"|simultaneously|concurrently|at once|at the same time)\b",
    re.IGNORECASE,
)
_OTHER_NUMBER = re.compile(
    r"\bat least\b|\b(?:no more than|at most|more than|up to|exactly|maximum of)"
    r" (?:two|three|four|five|six|seven|eight|nine|ten|[2-9]|\d\d+)\b",
    re.IGNORECASE,
)
_MORE = re.compile(r"\bmore than one (?:at a time|at once|at the same time)\b", re.IGNORECASE)
_CALL = re.compile(
    r"\b(?:tool|function)(?: |-)?calls?\b|\bcall(?:s|ing)? (?:a|any|the) (?:tool|function)\b|\bmak(?:e"
    r"|ing) a tool call\b|\bcall(?:ing)? tools\b",
    re.IGNORECASE,
)
_SPEAK = re.compile(r"\b(?:respond|reply|talk|speak|writ|messag|answer|text)\w*\b", re.IGNORECASE)
_TOGETHER = re.compile(
    r"\b(?:simultaneously|at the same time|at once|together|in the same (?:turn|response|message|step)"
    r"|alongside|mix|combine|both|and (?:also )?call)\w*\b|\bin a single (?:turn|response|message)\b",
    re.IGNORECASE,
)


def one_call_at_a_time(text: str, *, is_forbidden: bool) -> Draft | None:
    """`only one tool call at a time`, `never call several tools in parallel`."""
    if _OTHER_NUMBER.search(text):
        return None
    several = is_forbidden and (_SEVERAL.search(text) or (_MORE.search(text) and _CALL.search(text)))
    if not several and (is_forbidden or not _ONE_CALL.search(text)):
        return None
    return formula("G (tool(*) -> count[<=0t](tool(*)) <= 1)", "count")


def text_beside_call(text: str, *, is_forbidden: bool) -> Draft | None:
    """`if you make a tool call, do not respond to the user at the same time`."""
    if not (is_forbidden and _CALL.search(text) and _SPEAK.search(text) and _TOGETHER.search(text)):
        return None
    return formula(r"G !(text(/\S/) & tool(*))", "text", over="turns")
