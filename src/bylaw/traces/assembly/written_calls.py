"""Calls that a model wrote into the text of its answer, because whoever serves it did not read them from there.

Open models have a syntax for calls, and frameworks that prompt for calls have others. A sign is only what no ordinary
answer holds; text that merely mentions a tag (`<tool_call>` in backticks) has none.
"""

from __future__ import annotations

import re
from typing import Any

_MENTION = r"(?![ \t]*[.,;:!?)*\"'`\u2019\u201d]|[ \t]+(?:(?:and|or)\b|[A-Za-z]+(?:[ \t]+[A-Za-z]|[.,;:!?)-])))"
"""what follows a mark that prose only mentions: punctuation, or words; a call follows a mark at once, or as one word"""
_TAGS = re.compile(
    r"<(?>(?:\w+:)?tool_calls?>|TOOLCALL>|function_calls>|functioncall>|tool_use>|use_mcp_tool>|start_function_call>"
    r"|(?:function=|invoke name=)[^>\n]{0,200}>?|\|(?:tool_call\w*|python_tag|START_ACTION|call)\|?>?"
    r"|\uff5ctool\u2581call[^>\n]{0,40}>?)" + _MENTION
)
_XML_TOOL = re.compile(r"<tool>[^<>\n]{1,100}</tool>\s*(?:<tool_input>|\Z)")
_LISTS = re.compile(r"\[TOOL_CALLS\]" + _MENTION + r"|\bfunctools\[\s*(?:\{|\Z)")
_QWEN = "\u273fFUNCTION\u273f:"
_HARMONY = re.compile(
    r"\b(?:commentary|analysis|assistant)\s*(?:<\|\w+\|>\s*)*to=\w"
    r"|\bto=functions\.(?>[\w.-]{1,100})(?:\s*\Z|\s*<\||[^{\n]{0,80}\{)"
)
_REACT = re.compile(r"^[^\w\n]*Action[^\w\n]*:([^\n]*)", re.MULTILINE)
_REACT_INPUT = re.compile(r"^[^\w\n]*Action[ _]Input[^\w\n]*:", re.MULTILINE)
_REACT_JSON = re.compile(r"^[^\w\n]*Action[^\w\n]*:\s*(?:```\w*\s*)?(?=[{\[])", re.MULTILINE)
_FENCES = re.compile(r"```\s*(?:tool_code|(?:tool|function)_(?:calls?|use))\b(?!\s*```)", re.IGNORECASE)
_GEMINI = re.compile(r"\bdefault_api\.\w+\(")
_PYTHON = re.compile(r"\[\s*[A-Za-z_][\w.]*\(\s*(?:\)|\w+\s*=).*\]", re.DOTALL)
_JSON_FENCE = re.compile(r"```(?:json)?\s*(?=[{\[])", re.IGNORECASE)
_WHOLE_STARTS = ("{", "[", "`")
_ARGUMENTS = ("arguments", "parameters", "args", "tool_input", "tool_args")
_NAMES: dict[str, tuple[str, ...]] = {
    "name": _ARGUMENTS,
    "tool": (*_ARGUMENTS, "input"),
    "tool_name": (*_ARGUMENTS, "input"),
    "function": _ARGUMENTS,
    "function_name": _ARGUMENTS,
    "recipient_name": _ARGUMENTS,
    "action": ("action_input",),
}
"""keys that name a tool, with those that hold its arguments beside them"""
_HOLDERS = ("function", "command", "action", "tool", "tool_call", "function_call", "tool_calls", "tool_uses")
"""keys of an object that holds a call, or a list of calls"""
_DEFINED = frozenset(("description", "$schema"))
"""an object with these describes a tool"""
_NO_TOOL = frozenset(("final answer", "final_answer", "none", "n/a", "null", "no action", "nothing"))
"""what models write, or frameworks have them write, instead of the name of a tool"""
_SAMPLED = 50
_MOST_LEVELS = 3


def holds_call(text: str) -> bool:
    """Whether a text holds a sign of a call."""
    return (
        ("<" in text and (_TAGS.search(text) is not None or _XML_TOOL.search(text) is not None))
        or ("[" in text and _LISTS.search(text) is not None)
        or _QWEN in text
        or ("to=" in text and _HARMONY.search(text) is not None)
        or ("Action" in text and _is_react(text))
        or ("```" in text and _FENCES.search(text) is not None)
        or ("default_api." in text and _GEMINI.search(text) is not None)
        or (text.lstrip()[:1] in _WHOLE_STARTS and _is_whole_call(text.strip()))
    )


def _is_react(text: str) -> bool:
    if _REACT_INPUT.search(text) is not None:
        names = (name.strip(" \t\r*_`'\".()[]").lower() for name in _REACT.findall(text))
        if any(name not in _NO_TOOL for name in names):  # the name of a tool may also stand on the next line
            return True
    found = _REACT_JSON.search(text)
    return found is not None and _begins_with_call(text[found.end() :])


def _is_whole_call(text: str) -> bool:
    if (fence := _JSON_FENCE.match(text)) is not None:
        text = text[fence.end() :]
    return _PYTHON.fullmatch(text) is not None or _begins_with_call(text)


def _begins_with_call(text: str) -> bool:
    """Whether text begins with JSON that is a call. Several of them may follow each other."""
    if not text.startswith(("{", "[")):
        return False
    from json import JSONDecoder

    try:
        value, _ = JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return _is_call(value)


def _is_call(value: Any, level: int = 0) -> bool:
    if isinstance(value, list):
        return any(_is_call(one, level + 1) for one in value[:_SAMPLED]) if level < _MOST_LEVELS else False
    if not isinstance(value, dict) or not _DEFINED.isdisjoint(value):
        return False
    for key, arguments in _NAMES.items():
        name = value.get(key)
        if isinstance(name, str) and any(one in value for one in arguments):
            return name.lower() not in _NO_TOOL
    held = (value[key] for key in _HOLDERS if isinstance(value.get(key), (dict, list)))
    return level < _MOST_LEVELS and any(_is_call(one, level + 1) for one in held)
