"""The parameter `formula`: text → a formula."""

from __future__ import annotations

from bylaw.rules.located import Node, ScalarNode
from bylaw.rules.param_types import TEXT_SCHEMA
from bylaw.rules.params import Context, ParamType
from bylaw.rules.readers import read_text
from bylaw.rules.temporal.parser import Parsed, parse_formula
from bylaw.rules.temporal.places import Places
from bylaw.rules.temporal.report import Report


def _read(node: Node, name: str, context: Context) -> Parsed | None:
    text = read_text(node, name, context.problems)
    if text is None or not isinstance(node, ScalarNode):
        return None
    return parse_formula(text, Report(context.problems, Places(node)))


FORMULA = ParamType(_read, TEXT_SCHEMA, plain=lambda parsed: parsed.text)
