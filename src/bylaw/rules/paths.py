r"""Paths into a turn and into the arguments of a call.

    path     = root "." field { "." segment } | alias { "." segment }
    root     = "request" | "response"
    field    = one that every turn has, or any other key that a request was recorded with: `request.context`
    alias    = "model" | "stop_reason"
    argument = segment { "." segment | "[" ( index | "*" | quoted key ) "]" }
             | [ "#" ] "/" key { "/" key }      a JSON pointer
    segment  = "*"            any element of a list, any value of a mapping
             | index          digits, with "-" counting from the end
             | key            where "\." is a dot, "\*" a star and "\\" a backslash

A path that no turn can have is refused: a rule on it would never fire, unnoticed.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.model.condition import ALIASES, FIELDS, OTHER, Path
from bylaw.rules.messages import listing, nearest_choice, quote
from bylaw.rules.nodes import Node, Problems
from bylaw.rules.readers import read_text

MAX_SEGMENTS = 64
"""traces are not nested deeper"""

PLAIN_FIELDS = frozenset({"latency_ms", "model", "stop_reason", "text"})
"""fields that hold one value, so that nothing stands below them"""
LIST_FIELDS = frozenset({"content", "messages", "tool_calls", "tools"})

_SEGMENT = re.compile(r"(?:\\.|[^.\\])*(\\$)?", re.DOTALL)
_BAD_ESCAPE = re.compile(r"\\[^.*\\]|\\$")
_BARE_STAR = re.compile(r"(?:\\.|[^*\\])*\*", re.DOTALL)
_UNESCAPE = re.compile(r"\\(.)", re.DOTALL)
_INDEX = re.compile(r"-?[0-9]+")


class BadPath(Exception):
    """Not a path; the arguments make the diagnostic."""

    def __init__(self, *, code: str, message: str, help: str | None = None) -> None:
        self.code = code
        self.message = message
        self.help = help


class PathPart(Struct):
    raw: str
    """as written, escapes and all"""
    name: str | None
    """None is the wildcard"""


def parse_path(text: str) -> Path:
    """The path, or BadPath."""
    parts = split_path(text)
    if found := _INDEXED.search(text):
        meant = _to_dotted(text)
        raise BadPath(
            code="unknown-path", message=f"{quote(found[0])} is no part of a path", help=f"did you mean {quote(meant)}?"
        )
    root, field, rest = _locate(parts)
    _check_rest(root, field, rest)
    return Path(text=text, root=root, field=field, rest=tuple(part.name for part in rest))


def split_path(text: str) -> list[PathPart]:
    """The parts between the dots, of any kind of path; or BadPath."""
    return [_parse_part(raw, text) for raw in _split(text)]


def path_pattern() -> str:
    """The same as a regular expression, for editors."""
    fields = [_field_pattern(root, field) for root, fields in FIELDS.items() for field in fields]
    other = r"request\.[^.*].*"  # any other recorded key
    return f"^({'|'.join([*ALIASES, *fields, other])})$"


def _field_pattern(root: str, field: str) -> str:
    if field in PLAIN_FIELDS:
        return rf"{root}\.{field}"
    below = r"\.(\*|-?[0-9]+)(\..+)?" if field in LIST_FIELDS else r"\..+"
    return rf"{root}\.{field}({below})?"


def _split(text: str) -> list[str]:
    raws, at = [], 0
    while at <= len(text):
        found = _SEGMENT.match(text, at)
        assert found is not None
        raws.append(found[0])
        at = found.end() + 1
        if len(raws) > MAX_SEGMENTS:
            raise BadPath(code="bad-path", message=f"the path has more than {MAX_SEGMENTS} parts")
    return raws


def _parse_part(raw: str, text: str) -> PathPart:
    if raw == "*":
        return PathPart(raw, None)
    if not raw:
        raise BadPath(code="bad-path", message=f"the path {quote(text)} has an empty part", help="remove the extra dot")
    if found := _BAD_ESCAPE.search(raw.replace("\\\\", "..")):
        message = f"{quote(found[0])} is no escape in a path"
        raise BadPath(
            code="bad-path", message=message, help="`\\.` is a dot, `\\*` a star and `\\\\` a backslash in a key"
        )
    if _BARE_STAR.match(raw):
        raise BadPath(
            code="bad-path", message="`*` must stand alone between dots", help="for a star in a key write `\\*`"
        )
    return PathPart(raw, _UNESCAPE.sub(r"\1", raw))


def _locate(parts: list[PathPart]) -> tuple[str, str, list[PathPart]]:
    first = parts[0].name or "*"
    if first in ALIASES:
        root, field = ALIASES[first]
        return root, field, parts[1:]
    if first not in FIELDS:
        raise BadPath(code="unknown-path", message=f"no turn has {quote(first)}", help=_root_help(parts))
    if len(parts) == 1:
        raise BadPath(code="unknown-path", message=f"{quote(first)} alone names no value", help=_field_help(first))
    field = parts[1].name or "*"
    if (
        first == "request"
        and field not in ("*", OTHER)
        and not nearest_choice(field, FIELDS[first], _FIELD_WORDS[first])
    ):
        return first, OTHER, parts[1:]  # any other recorded key, rather than the field that it looks like
    if field not in FIELDS[first]:
        raise BadPath(code="unknown-path", message=f"a {first} has no {quote(field)}", help=_field_help(first, parts))
    return first, field, parts[2:]


def _check_rest(root: str, field: str, rest: list[PathPart]) -> None:
    """Refuse what can never be found below `field`."""
    if not rest or field == OTHER:
        return
    whole = f"{root}.{field}"
    if field in PLAIN_FIELDS:
        raise BadPath(code="unknown-path", message=f"nothing stands below `{whole}`", help=f"write `{whole}`")
    if field in LIST_FIELDS and rest[0].name is not None and not _INDEX.fullmatch(rest[0].name):
        meant = ".".join([whole, "*", *(part.raw for part in rest)])
        raise BadPath(code="unknown-path", message=f"`{whole}` is a list", help=f"did you mean {quote(meant)}?")
    if field == "tool_calls" and len(rest) > 1 and rest[1].name not in (None, *CALL_KEYS):
        match = nearest_choice(
            rest[1].name or "", CALL_KEYS, {"args": "arguments", "input": "arguments", "tool": "name"}
        )
        call = [whole, rest[0].raw, match or "name", *(part.raw for part in rest[2:])]
        help = _suggest_path(call) if match else f"a call has {listing(list(CALL_KEYS))}"
        raise BadPath(code="unknown-path", message=f"a call has no {quote(rest[1].name or '')}", help=help)


CALL_KEYS = ("arguments", "id", "name")
"""the fields of a call that a path can name"""


def _root_help(parts: list[PathPart]) -> str:
    first = parts[0].name or "*"
    if first in _OUTER:
        meant = ".".join(["response", "tool_calls", "*", "arguments", *(part.raw for part in parts[1:])])
        return f"write {quote(meant)} for the arguments of any call, or `where` for those of the call the rule is about"
    below = {field: root for root in reversed(FIELDS) for field in FIELDS[root]}
    if first in below:
        return _suggest_path([below[first], *(part.raw for part in parts)])
    if match := nearest_choice(first, [*FIELDS, *ALIASES]):
        return _suggest_path([match, *(part.raw for part in parts[1:])])
    return f"a path starts with {listing([*FIELDS, *ALIASES], last='or')}"


def _field_help(root: str, parts: list[PathPart] | None = None) -> str:
    if parts and (match := nearest_choice(parts[1].name or "*", FIELDS[root], _FIELD_WORDS[root])):
        return _suggest_path([root, match, *(part.raw for part in parts[2:])])
    return f"a {root} has {listing(FIELDS[root])}"


def _suggest_path(raws: list[str]) -> str:
    return f"did you mean {quote('.'.join(raws))}?"


_FIELD_WORDS = {
    "request": {"parameters": "params", "meta": "metadata", "prompt": "messages", "input": "messages"},
    "response": {
        "finish_reason": "stop_reason",
        "latency": "latency_ms",
        "duration_ms": "latency_ms",
        "tools": "tool_calls",
        "tokens": "usage",
        "output": "text",
    },
}


_ROOTED = re.compile(r"\$(?=[.\[]|$)")
_BRACKET = re.compile(r"\[\s*(?:'([^']*)'|\"([^\"]*)\"|(-?[0-9]+|\*))\s*\]")
_INDEXED = re.compile(r"\[(?:-?[0-9]+|\*)\]")
_LONE_BRACKET = re.compile(r"\[[^\]]*\]?|\]")
_OTHER_ACCESS = re.compile(r"\{(-?[0-9]+|\*)\}|\((-?[0-9]+|\*)\)|->")
_SPECIAL = re.compile(r"[.*\\]")
_OUTER = ("args", "arguments")
_START = "a path starts at the arguments: write the name of one, such as `amount`"


class ArgumentPath(Struct, frozen=True):
    text: str
    """as the user wrote it"""
    keys: tuple[str | None, ...]
    """keys and list indices; None is the wildcard `*`"""


def read_argument_path(node: Node, name: str, problems: Problems) -> ArgumentPath | None:
    text = read_text(node, name, problems)
    if text is None:
        return None
    try:
        keys = tuple(part.name for part in _split_paths(text))
    except BadPath as bad:
        problems.error(code=bad.code, message=bad.message, at=node, help=bad.help)
        return None
    _warn_of_unlikely(text, keys, node, problems)
    return ArgumentPath(text, keys)


def path_text(keys: tuple[str | None, ...]) -> str:
    """The path as it is written."""
    return ".".join("*" if key is None else _escape(key) for key in keys)


def _split_paths(text: str) -> list[PathPart]:
    """The parts of `body.to`, of `recipients[0].to`, or of the JSON pointer `/body/to`."""
    if _ROOTED.match(text):
        meant = _to_dotted(text)
        help = f"write {quote(meant)}: a path starts at the arguments" if meant else _START
        raise BadPath(code="bad-path", message=f"{quote(text)} is not a path here: there is no `$`", help=help)
    if text.startswith(("/", "#/")):
        from urllib.parse import unquote  # rarely needed, and it brings four modules

        pointer = unquote(text[1:]) if text.startswith("#") else text
        # in a JSON pointer `~1` is a slash and `~0` a tilde; `*` is any element, as everywhere
        keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer[1:].split("/")]
        return split_path(".".join(key if key == "*" else _escape(key) for key in keys))
    plain = _BRACKET.sub("", text)
    _refuse_odd(text, plain)
    if found := _LONE_BRACKET.search(plain):
        help = "write an index as `[0]` or `.0`; for a bracket in a key write the key as `['a[b']`"
        raise BadPath(code="bad-path", message=f"{quote(found[0])} in {quote(text)} is not an index", help=help)
    return split_path(_to_dotted(text) if "[" in text else text)


def _refuse_odd(text: str, plain: str) -> None:
    """Refuse a path in the syntax of another language, or a likely typo. `plain`: the path without keys in brackets."""
    if text == "#":
        raise BadPath(code="bad-path", message="`#` names no argument", help=_START)
    if "?." in text or "?[" in text:
        meant = text.replace("?.", ".").replace("?[", "[")
        help = f"write {quote(meant)}: a value that is not there is absent anyway"
        raise BadPath(code="bad-path", message=f"`?` in {quote(text)} is no part of a path", help=help)
    if found := _OTHER_ACCESS.search(plain):
        meant = _OTHER_ACCESS.sub(lambda one: f".{one[1] or one[2]}" if one[1] or one[2] else ".", text)
        message = f"{quote(found[0])} in {quote(text)} is no part of a path"
        help = f"did you mean {quote(meant)}? For a key with these characters write `['…']`"
        raise BadPath(code="bad-path", message=message, help=help)
    if any(key != key.strip() for key in plain.split(".")):
        meant = ".".join(key.strip() for key in text.split("."))
        message = f"the path {quote(text)} has a space before or after a key"
        raise BadPath(code="bad-path", message=message, help=f"write {quote(meant)}")


def _warn_of_unlikely(text: str, keys: tuple[str | None, ...], node: Node, problems: Problems) -> None:
    """What can be read, though hardly as it was meant."""
    if keys[0] not in _OUTER or len(keys) == 1:
        return
    meant = path_text(keys[1:])
    problems.warn(
        code="unlikely-path",
        message=f"the path {quote(text)} looks for an argument called `{keys[0]}`",
        at=node,
        help=f"if {quote(meant)} is meant, write that: a path starts at the arguments, with dots between the keys",
    )


def _to_dotted(text: str) -> str:
    """The same path with dots, without `$`."""
    dotted = _BRACKET.sub(lambda found: f".{found[3] or _escape(found[1] or found[2] or '')}", text)
    return dotted.removeprefix("$").lstrip(".")


def _escape(key: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", key)
