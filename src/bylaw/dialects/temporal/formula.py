"""The parameter `formula`: text → a formula."""

from __future__ import annotations

from bylaw.dialects.located import Node, ScalarNode
from bylaw.dialects.param_types import TEXT_SCHEMA
from bylaw.dialects.params import Context, ParamType
from bylaw.dialects.readers import read_text
from bylaw.dialects.temporal.parser import Parsed, parse_formula
from bylaw.dialects.temporal.places import Places
from bylaw.dialects.temporal.report import Report


def _read(node: Node, name: str, context: Context) -> Parsed | None:
    text = read_text(node, name, context.problems)
    if text is None or not isinstance(node, ScalarNode):
        return None
    return parse_formula(text, Report(context.problems, Places(node)))


FORMULA = ParamType(_read, TEXT_SCHEMA, plain=lambda parsed: parsed.text)
