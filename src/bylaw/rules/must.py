"""What `must_followup` asks of the next turn: `{kind: tool_call, tool_name}` or `{kind: text_includes, text}`."""

from __future__ import annotations

from typing import Any

from bylaw.model.demand import Calls, TextHas
from bylaw.rules.located import MapNode, Node
from bylaw.rules.param_types import TOOLS
from bylaw.rules.params import Context, Param, ParamType, read_params
from bylaw.rules.readers import read_map, read_text
from bylaw.rules.text_match import TEXT_PARAMS, text_has
from bylaw.rules.words import did_you_mean, quote

MUST_KINDS: dict[str, tuple[Param, ...]] = {
    "text_includes": TEXT_PARAMS,
    "tool_call": (Param("tool_name", TOOLS, "the tool to call: a name, a glob, or a list", required=True),),
}
_KIND_WORDS = {"call": "tool_call", "tool": "tool_call", "text": "text_includes", "must_include_text": "text_includes"}


def read_must(node: Node, name: str, context: Context) -> Calls | TextHas | None:
    mapping = read_map(node, name, context.problems)
    kind = _read_kind(mapping, name, context) if mapping else None
    if mapping is None or kind is None:
        return None
    values = read_params(mapping, MUST_KINDS[kind], context, what=f"`{name}` of kind `{kind}`", known=("kind",))
    if values is None:
        return None
    return Calls(tools=values["tool_name"]) if kind == "tool_call" else text_has(values)


def _read_kind(mapping: MapNode, name: str, context: Context) -> str | None:
    entry = mapping.entries.get("kind")
    if entry is None:
        context.problems.error(
            code="missing-key",
            message=f"`{name}` needs the key `kind`",
            at=mapping.first_key,
            help="write `kind: tool_call` or `kind: text_includes`",
        )
        return None
    kind = read_text(entry.value, "kind", context.problems)
    if kind is None or kind in MUST_KINDS:
        return kind
    context.problems.error(
        code="unknown-kind",
        message=f"`{name}` has no kind {quote(kind)}",
        at=entry.value,
        help=did_you_mean(kind, MUST_KINDS, _KIND_WORDS),
    )
    return None


def _plain_must(must: Calls | TextHas) -> dict[str, Any]:
    if isinstance(must, Calls):
        return {"kind": "tool_call", "tool_name": list(must.tools)}
    return {"kind": "text_includes", "text": must.text, "regex": must.regex, "ignore_case": must.ignore_case}


MUST = ParamType(read_must, {"$ref": "#/$defs/must"}, plain=_plain_must)
