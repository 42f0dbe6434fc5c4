"""What tools return: the type and fields that a tool describes, and the results and failures that a trace shows."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from bylaw.comply.model import ToolSpec
from bylaw.comply.prompt.vocabulary import any_case, stems
from bylaw.model.events import Event, Response, ToolCall, ToolResult

Answer: TypeAlias = Literal["boolean", "number", "list", "object", "text", ""]
_YES_NO = any_case(r"\btrue or false\b|\bboolean\b|\bwhether\b|\btrue if\b|\byes or no\b|\btrue (?:only )?when\b")
_CHECKS = any_case(r"\W*(?:checks?|verif(?:y|ies)|validates?|tests?|determines?|tells?) (?:if|whether|that)\b")
_LISTS = any_case(r"\breturns?\b[^.]*\b(?:list|array)\b|\blists? (?:of|all|the)\b")
_OBJECTS = any_case(
    r"\breturns?\b[^.]*\b(?:dict(?:ionary)?|object|details|record|profile|information|json|mapping|both)\b"
    r"|\b(?:retrieves?|gets?|shows?) (?:the )?(?:\w+ )?(?:details|profile|record|information)\b"
)
_LISTED = any_case(
    r"\breturns?:?\s+(?P<fields>[a-z_]\w*(?: \w+)?(?:(?:,\s*(?:and )?| and )[a-z_]\w*(?: \w+)?)+)\W*(?:\.|$)"
)
"""`Returns status, total, delivery date`: the fields of an object"""
_SEVERAL = any_case(r"\breturns?\b[^.]*,[^.]*\band\b|\bwith \w+, \w+[^.]* and \w+|\breturns? \w+ and \w+ of\b")
"""names several things: they are fields of an object"""
_TEXTS = any_case(
    r"\b(?:returns?|retrieves?|gets?)\b[^.]*\b(?:string|text|word|date|address|name|title|email|deadline|time|day)\b"
)
_NUMBERS = any_case(
    r"\breturns?\b[^.]*\b(?:number|integer|int|float|count|amount|balance|total|score|how many|percentage|fee|price)\b"
)


def answer_of(tool: ToolSpec) -> Answer:
    """The return type of a tool, by its output schema, its results or its description."""
    if tool.answer:
        return "number" if tool.answer == "integer" else tool.answer  # type: ignore[return-value]
    return _described_answer(tool.description)


@lru_cache(maxsize=4_096)
def _described_answer(text: str) -> Answer:
    if _YES_NO.search(text) or _CHECKS.match(text):
        return "boolean"
    kinds = (
        (_LISTS, "list"),
        (_OBJECTS, "object"),
        (_LISTED, "object"),
        (_SEVERAL, "object"),
        (_NUMBERS, "number"),
        (_TEXTS, "text"),
    )
    for pattern, kind in kinds:
        if pattern.search(text):
            return kind  # type: ignore[return-value]
    return ""


def listed_fields(tool: ToolSpec) -> list[str]:
    """The fields that a description lists: `Returns status, total, delivery date`."""
    found = _LISTED.search(tool.description)
    names = re.split(r",\s*(?:and )?| and ", found["fields"].lower()) if found else []
    return [re.sub(r"\s+", "_", name.strip()) for name in names]


def described_fields(tool: ToolSpec, description_stems: frozenset[str]) -> list[str]:
    """Fields of two words that the tool's description names in words of the sentence: `credit_balance`."""
    words = [word.lower() for word in re.findall(r"[A-Za-z]+|[,.;]", tool.description)]
    pairs = [(left, right) for left, right in pairwise(words) if left.isalpha() and right.isalpha()]
    return [
        f"{left}_{right}"
        for left, right in pairs
        if len(both := stems(f"{left} {right}")) == 2 and description_stems.issuperset(both)
    ]


# -- results in Python's notation --------------------------------------------------------------------------------------

LONGEST = 1 << 18
"""characters; longer texts stay as they are"""
DEEPEST = 40
"""nested brackets"""
_NAMES = {"True": True, "False": False, "None": None, "true": True, "false": False}


def read_result(event: Event) -> Event:
    """The event itself, or the value of a result in Python's notation.

    Many harnesses record `str(result)`: `True`, `None`, `{'status': 'pending'}`, `(True, {…})`. Lists and objects in
    JSON stay as they are, since the engine reads them itself; so does any text that is not one whole Python literal. In
    a pair, a first half of `True` or `False` is a success flag: `(True, v)` is read as `v`, `(False, v)` as `v` of
    a call that failed.
    """
    if type(event) is not ToolResult or type(event.content) is not str:
        return event
    found = read_literal(event.content)
    if found is None:
        return event
    value, failed = found
    if value is None:  # content that is None was not recorded
        value = "None"
    return replace(event, content=value, is_error=True if failed and event.is_error is None else event.is_error)


def read_literal(text: str) -> tuple[Any, bool] | None:
    """The value, and whether a flag says that the call failed; None if the text is not a Python literal."""
    text = text.strip()
    if text in _NAMES:
        return _NAMES[text], False
    if len(text) > LONGEST or text[:1] not in ("(", "[", "{") or text[-1] not in ")]}":
        return None
    if _depth(text) > DEEPEST:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text)
        return None  # the engine reads JSON itself
    try:
        match ast.literal_eval(text):
            case (bool(succeeded), value) as pair if isinstance(pair, tuple):
                return _to_json_value(value), not succeeded
            case value:
                return _to_json_value(value), False
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _depth(text: str) -> int:
    """How deep brackets are nested. Those inside quotes count too: a text that is too deep is only left unread."""
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _to_json_value(value: Any) -> Any:
    """The value as JSON holds it. Raises ValueError if JSON has no form for it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        if not all(key is None or isinstance(key, bool | int | float | str) for key in value):
            raise ValueError("a key that is not a scalar")
        return {key if isinstance(key, str) else json.dumps(key): _to_json_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(one) for one in value]
    if isinstance(value, set):
        return sorted((_to_json_value(one) for one in value), key=str)
    raise ValueError(f"a value of the type {type(value).__name__}")


# -- types and fields --------------------------------------------------------------------------------------------------

MOST_FIELDS = 100
_TYPES = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
_FAILED = re.compile(r"\s*(?:\w*(?:Error|Exception)\b|Traceback \()")
_NUMERIC = re.compile(r"\s*[+-]?\d+(?:\.\d+)?\s*")


def observe_results(events: Iterable[Event], tools: Collection[str]) -> dict[str, ToolSpec]:
    """The type and fields of the results of these tools, the type empty if they have several.

    Results that failed show nothing.
    """
    kinds: dict[str, set[str]] = {}
    fields: dict[str, dict[str, None]] = {}
    for event in events:
        if not isinstance(event, ToolResult):
            continue
        name = event.name or (event.certain_call.name if event.certain_call else None)
        if name is None or event.is_error or name not in tools or (value := _value(event)) is None:
            continue
        kinds.setdefault(name, set()).add(_TYPES[type(value)])
        own = fields.setdefault(name, {})
        if isinstance(value, dict) and len(own) < MOST_FIELDS:
            own.update(dict.fromkeys(str(key) for key in list(value)[:MOST_FIELDS]))
    return {
        name: ToolSpec(name=name, answer="".join(some) if len(some) == 1 else "", fields=tuple(sorted(fields[name])))
        for name, some in kinds.items()
    }


def _value(event: ToolResult) -> Any:
    """The value, as far as its type matters; None for a failure or nothing."""
    read = read_result(event)
    content = read.content if isinstance(read, ToolResult) else None
    if isinstance(content, str):
        if content in ("", "None", "null") or _FAILED.match(content) or len(content) > LONGEST:
            return None
        if content.lstrip()[:1] in ("{", "["):
            try:
                content = msgspec.json.decode(content)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                return content
        elif _NUMERIC.fullmatch(content):
            return 0
    return content if type(content) in _TYPES else None


# -- calls that failed -------------------------------------------------------------------------------------------------

_VERIFIES = re.compile(
    r"(?:^|_)(?:verif\w*|authenticat\w*|validat\w*|confirm\w*|approv\w*|authori[sz]\w*|identify\w*|log_?in|login"
    r"|sign_?in|signin|log_?on|sign_?on|(?:check|test)_(?:[a-z]+_)?(?:identity|ids?|pins?|passwords?|passcode"
    r"|credentials?|otp|codes?|signature|consent|permissions?|access|eligibility|authori[sz]ation|login))(?:_|$)"
)
"""names of tools whose negative answer means that it was not done; `check_fraud` may well be meant to say no"""
FLAGS = frozenset(
    f"{start}{word}"
    for start in ("", "is_")
    for word in ("verified", "authenticated", "approved", "valid", "authorized", "confirmed", "validated", "logged_in")
)
"""fields that have such a meaning whatever the tool is"""
_SUCCESS = frozenset(("ok", "success", "successful", "succeeded", "passed", "allowed"))
_OUTCOMES = ("status", "state", "result", "outcome", "decision", "verdict")
_NO = re.compile(
    r"\s*(?:(?:un|not |in)\w*(?:success\w*|verified|authori[sz]ed|authenticated|approved|valid)|fail\w*|errors?|denied"
    r"|den(?:y|ies)|reject\w*|declin\w*|refus\w*|false|no|none|null|mismatch|expired|timeout|timed out|forbidden)?\W*",
    re.IGNORECASE,
)
_ERROR_TEXT = re.compile(
    r"\s*(?:\w*error\b|\w*exception\b|traceback \(|fail(?:ed|ure)\b|timed? ?out\b|access denied|permission denied)",
    re.IGNORECASE,
)
_READS = re.compile(r"(?:get|list|search|find|look|lookup|read|show|fetch|retrieve|query|view)(?:_|[A-Z]|$)")


@lru_cache(maxsize=4_096)
def verifies(name: str) -> bool:
    """Whether a tool's name says that its call counts only if the answer is positive."""
    return _VERIFIES.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()) is not None


def drop_failed_calls(events: Iterable[Event]) -> list[Event] | None:
    """The events without calls that failed, and without all calls of a check whose last answer is negative.

    None if no call failed. Events are those that `read_result` gives.
    """
    events = list(events)
    dropped, last = set[int](), dict[str, bool]()
    for event in events:
        if type(event) is not ToolResult or event.call is None or event.is_guessed:
            continue
        failed = _has_failed(event, event.call.name)
        if verifies(event.call.name):
            last[event.call.name] = failed
        if failed:
            dropped.add(id(event.call))
    if not dropped:
        return None

    def is_successful(call: ToolCall | None) -> bool:
        return call is None or not (id(call) in dropped or last.get(call.name, False))

    remaining: list[Event] = []
    for event in events:
        if isinstance(event, ToolCall | ToolResult):
            if is_successful(event.call if isinstance(event, ToolResult) else event):
                remaining.append(event)
        elif type(event) is Response and not all(map(is_successful, event.tool_calls)):
            remaining.append(replace(event, tool_calls=tuple(filter(is_successful, event.tool_calls))))
        else:
            remaining.append(event)
    return remaining


def _has_failed(event: ToolResult, tool: str) -> bool:
    """Whether a result says that the call did nothing, or that a check did not succeed."""
    if event.is_error:
        return True
    content, is_check = event.content, verifies(tool)
    if isinstance(content, str):
        if content.lstrip()[:1] != "{":
            return _ERROR_TEXT.match(content) is not None or (is_check and _NO.fullmatch(content) is not None)
        if len(content) > LONGEST:
            return False
        try:
            content = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return False
    if isinstance(content, dict):
        return _says_no(content, is_check=is_check, reads=_READS.match(tool) is not None)
    return is_check and content in (None, False, [])


def _says_no(content: dict[str, Any], *, is_check: bool, reads: bool, depth: int = 3) -> bool:
    if any(content.get(key) is False for key in (FLAGS if not reads or is_check else ())):
        return True
    if any(content.get(key) is False for key in _SUCCESS) or (content.get("error") and not reads):
        return True
    outcomes = [content.get(key) for key in _OUTCOMES]
    if not reads and any(isinstance(one, str) and one.strip() and _NO.fullmatch(one) for one in outcomes):
        return True
    inner = [one for key, one in content.items() if isinstance(one, dict) and key in ("data", "result", "response")]
    is_no = is_check and content.get("result") is False
    return is_no or (depth > 0 and any(_says_no(one, is_check=is_check, reads=reads, depth=depth - 1) for one in inner))
