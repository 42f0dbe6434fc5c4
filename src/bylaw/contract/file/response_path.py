"""Where an agent's reply holds its answer: `choices.0.message.content`, or the same as `$.choices[0].message.content`.

path = ["$"] part { part }
part = ["."] name | "." digits | "[" digits "]" | "['" name "']"
"""

from __future__ import annotations

import re

from bylaw.rules.located import Node
from bylaw.rules.params import Context
from bylaw.rules.readers import read_text
from bylaw.rules.words import quote

_PART = re.compile(r"""\.?([^.\[\]$*'"\s][^.\[\]*'"]*)|\[(\d{1,6})\]|\['([^.'\[\]]+)'\]|\["([^."\[\]]+)"\]""")


def read_response_path(node: Node, name: str, context: Context) -> str | None:
    """The canonical form: keys and indexes with dots between them."""
    text = read_text(node, name, context.problems)
    if text is None:
        return None
    parts = _parts(text)
    if parts is None:
        context.problems.error(
            code="bad-path",
            message=f"{quote(text)} is no path to one value",
            at=node,
            help="write keys and indexes with dots between them, such as `choices.0.message.content`",
        )
        return None
    return ".".join(parts)


def _parts(text: str) -> list[str] | None:
    place = 1 if text.startswith(("$.", "$[")) else 0
    parts: list[str] = []
    while place < len(text):
        found = _PART.match(text, place)
        if found is None or (found[1] is not None and (text[place] == ".") != (place > 0)):
            return None
        parts.append(next(group for group in found.groups() if group is not None))
        place = found.end()
    return parts
