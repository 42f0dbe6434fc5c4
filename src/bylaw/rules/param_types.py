"""The types a parameter can have. Each knows how to read a node, and how to say so in JSON Schema."""

from __future__ import annotations

from typing import Any

from bylaw.model.condition import Condition
from bylaw.rules.conditions import conditions_schema, plain_conditions, read_conditions, read_path
from bylaw.rules.located import Node
from bylaw.rules.params import Context, ParamType, Values
from bylaw.rules.paths import path_pattern
from bylaw.rules.readers import read_count, read_flag, read_share, read_text, read_texts, report_wrong_type
from bylaw.rules.regexes import check_pattern
from bylaw.rules.schemas import read_schema, read_schema_file
from bylaw.rules.words import did_you_mean, listing, quote

TEXT_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1}
TEXTS_SCHEMA: dict[str, Any] = {"anyOf": [TEXT_SCHEMA, {"type": "array", "items": TEXT_SCHEMA, "minItems": 1}]}


def _read_trigger(node: Node, name: str, context: Context) -> tuple[Condition, ...] | None:
    conditions = read_conditions(node, name, context.problems)
    if conditions == ():
        context.problems.error(
            code="empty-value",
            message=f"`{name}` is an empty list",
            at=node,
            help="name the turns that trigger the rule",
        )
        return None
    return conditions


def _check_text(text: str, node: Node, values: Values, context: Context) -> bool:
    return not values.get("regex") or check_pattern(text, node, context.problems)


def choice(*words: str) -> ParamType:
    """One of these words."""

    def read(node: Node, name: str, context: Context) -> str | None:
        text = read_text(node, name, context.problems)
        if text is None or text in words:
            return text
        wanted = listing(words, last="or")
        report_wrong_type(node, quote(name), wanted, context.problems, help=did_you_mean(text, words))
        return None

    return ParamType(read, {"enum": list(words)})


TOOLS = ParamType(lambda node, name, c: read_texts(node, name, c.problems), TEXTS_SCHEMA, plain=list)
"""a tool's name, a glob, or a list of these → tuple of names"""

NAMES = ParamType(lambda node, name, c: read_texts(node, name, c.problems), TEXTS_SCHEMA, plain=list)
"""a text or a list of texts → tuple"""

PATTERN = ParamType(lambda node, name, c: read_text(node, name, c.problems), TEXT_SCHEMA, check=_check_text)
"""text, or a regular expression where the parameter `regex` is true"""

COUNT = ParamType(lambda node, name, c: read_count(node, name, c.problems), {"type": "integer", "minimum": 0})

SHARE = ParamType(
    lambda node, name, c: read_share(node, name, c.problems), {"type": "number", "minimum": 0, "maximum": 1}
)

FLAG = ParamType(lambda node, name, c: read_flag(node, name, c.problems), {"type": "boolean"})

PATH = ParamType(
    lambda node, name, c: read_path(node, name, c.problems),
    {"type": "string", "pattern": path_pattern()},
    plain=lambda path: path.text,
)
"""a path into a turn → Path"""

TRIGGER = ParamType(_read_trigger, conditions_schema(min_items=1), plain=plain_conditions)
"""conditions, at least one → tuple of Condition"""

SCHEMA = ParamType(lambda node, name, c: read_schema(node, name, c.problems), {"type": ["object", "boolean"]})
"""a JSON Schema written out"""

SCHEMA_PATH = ParamType(lambda node, name, c: read_schema_file(node, name, c.problems, c.base, c.schemas), TEXT_SCHEMA)
"""the path of a file that holds one → the schema itself"""
