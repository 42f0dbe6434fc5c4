"""`same`: the arguments that two events must have in common."""

from __future__ import annotations

from bylaw.rules.located import ListNode, Node
from bylaw.rules.param_types import TEXTS_SCHEMA
from bylaw.rules.params import Context, ParamType
from bylaw.rules.readers import read_texts
from bylaw.rules.temporal.tests import PATH
from bylaw.rules.words import quote


def _read(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    paths = read_texts(node, name, context.problems)
    if paths is None:
        return None
    items = node.items if isinstance(node, ListNode) else [node]
    good = [_check(path, item, context) for path, item in zip(paths, items, strict=True)]
    return tuple(dict.fromkeys(paths)) if all(good) else None


def _check(path: str, node: Node, context: Context) -> bool:
    if path.startswith("args."):
        help = f"write {quote(path.removeprefix('args.'))}: `same` always speaks of arguments"
        context.problems.error(code="bad-path", message=f"{quote(path)} begins with `args`", at=node, help=help)
        return False
    if not PATH.fullmatch(f"args.{path}"):
        help = "parts stand between single dots; a part with blanks stands in double quotes"
        context.problems.error(code="bad-path", message=f"{quote(path)} is no path", at=node, help=help)
        return False
    if "*" in path.split("."):
        help = "name one value, such as `items.0.id`"
        message = "`*` names many values, and `same` compares one"
        context.problems.error(code="variable-wildcard", message=message, at=node, help=help)
        return False
    return True


SAME = ParamType(_read, TEXTS_SCHEMA, plain=list)
