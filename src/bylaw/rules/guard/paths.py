"""Paths into a call's arguments: `amount`, `recipients.0`, `body.to`, `recipients.*`.

Written as every path is (see `dialects/paths.py`), and they start at the arguments themselves.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.rules.located import Node
from bylaw.rules.paths import BadPath, Part, split_path
from bylaw.rules.problems import Problems
from bylaw.rules.readers import read_text
from bylaw.rules.words import quote

_ROOTED = re.compile(r"\$(?=[.\[]|$)")
_BRACKET = re.compile(r"\[\s*(?:'([^']*)'|\"([^\"]*)\"|(-?[0-9]+|\*))\s*\]")
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
        keys = tuple(part.name for part in _split(text))
    except BadPath as bad:
        problems.error(code=bad.code, message=bad.message, at=node, help=bad.help)
        return None
    _warn_of_unlikely(text, keys, node, problems)
    return ArgumentPath(text, keys)


def path_text(keys: tuple[str | None, ...]) -> str:
    """The path as it is written."""
    return ".".join("*" if key is None else _escape(key) for key in keys)


def _split(text: str) -> list[Part]:
    if _ROOTED.match(text):
        meant = _dotted(text)
        help = f"write {quote(meant)}: a path starts at the arguments" if meant else _START
        raise BadPath(code="bad-path", message=f"{quote(text)} is not a path here: there is no `$`", help=help)
    return split_path(text)


def _warn_of_unlikely(text: str, keys: tuple[str | None, ...], node: Node, problems: Problems) -> None:
    """What can be read, though hardly as it was meant."""
    if keys[0] in _OUTER and len(keys) > 1:
        meant, what = text.partition(".")[2], f"looks for an argument called `{keys[0]}`"
    elif text.startswith("/") and len(text) > 1:
        meant, what = text[1:].replace("/", "."), "is one key here, slash and all"
    elif _BRACKET.search(text):
        meant, what = _dotted(text), "has a key with brackets in it"
    else:
        return
    problems.warn(
        code="unlikely-path",
        message=f"the path {quote(text)} {what}",
        at=node,
        help=f"if {quote(meant)} is meant, write that: a path starts at the arguments, with dots between the keys",
    )


def _dotted(text: str) -> str:
    """The same path with dots, without `$`."""
    dotted = _BRACKET.sub(lambda found: "." + _escaped(found), text)
    return dotted.removeprefix("$").lstrip(".")


def _escaped(found: re.Match[str]) -> str:
    if found[3] is not None:
        return found[3]
    return _escape(found[1] if found[1] is not None else found[2])


def _escape(key: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", key)
