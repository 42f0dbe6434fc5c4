"""`$NAME` and `${NAME}` in a value, taken from the environment. `$$` is a dollar."""

from __future__ import annotations

import re

from bylaw.rules.located import MapNode, Node
from bylaw.rules.params import Context
from bylaw.rules.readers import read_map, read_text
from bylaw.rules.words import quote

_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def read_expanded(node: Node, name: str, context: Context) -> str | None:
    """The text with its variables filled in; None, and which, where one is not set.

    What a variable holds may be a secret: messages show the text as it is written, never what it became.
    """
    text = read_text(node, name, context.problems)
    if text is None:
        return None
    found = [match[1] or match[2] for match in _VARIABLE.finditer(text)]
    unset = [variable for variable in dict.fromkeys(found) if variable and variable not in context.variables]
    for variable in unset:
        context.problems.error(
            code="unset-variable",
            message=f"the environment variable {quote(variable)} is not set",
            at=node,
            help="set it before the command; a dollar sign itself is written `$$`",
        )
    return None if unset else _VARIABLE.sub(lambda match: _value(match, context), text)


def read_expanded_map(node: Node, name: str, context: Context) -> dict[str, str] | None:
    """A mapping of names to texts."""
    mapping = read_map(node, name, context.problems)
    return None if mapping is None else _expand_values(mapping, context)


def _expand_values(mapping: MapNode, context: Context) -> dict[str, str] | None:
    values = {key: read_expanded(entry.value, key, context) for key, entry in mapping.entries.items()}
    good = {key: value for key, value in values.items() if value is not None}
    return good if len(good) == len(values) else None


def _value(match: re.Match[str], context: Context) -> str:
    variable = match[1] or match[2]
    return context.variables[variable] if variable else "$"
