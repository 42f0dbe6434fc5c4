"""The turn after a triggering one does what `must` says.

`must` is `{kind: tool_call, tool_name}`, on request with `where` (conditions on the arguments of that call), or `{kind:
text_includes, text}`; the latter also takes `regex` and `ignore_case`. A trigger on the last turn of the scope breaks
the rule too: nothing followed.

Vacuous when nothing triggers. One finding per trigger, at the turn that should have followed up, or at the trigger if
it was the last turn. With `when`, only matching turns trigger; the turn after need not match.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.demand import Calls, Next
from bylaw.model.temporal import TextHas
from bylaw.rules.calls import WHERE_PARAM, calls_of
from bylaw.rules.conditions import plain_where
from bylaw.rules.messages import did_you_mean, quote, synonyms
from bylaw.rules.nodes import MapNode, Node
from bylaw.rules.params import (
    TEXT_PARAMS,
    TOOLS,
    TRIGGER,
    Context,
    Param,
    ParamType,
    Values,
    params_schema,
    read_params,
    text_has,
)
from bylaw.rules.readers import read_map, read_text

_MUST: dict[str, tuple[Param, ...]] = {
    "text_includes": TEXT_PARAMS,
    "tool_call": (Param("tool_name", TOOLS, "the tool to call: a name, a glob, or a list", required=True), WHERE_PARAM),
}
_MUST_SYNONYMS = synonyms({"tool_call": "call tool", "text_includes": "text must_include_text"})


def _read_must(node: Node, name: str, context: Context) -> Calls | TextHas | None:
    mapping = read_map(node, name, context.problems)
    kind = _read_kind(mapping, name, context) if mapping else None
    if mapping is None or kind is None:
        return None
    values = read_params(mapping, _MUST[kind], context, what=f"`{name}` of kind `{kind}`", known=("kind",))
    if values is None:
        return None
    return calls_of(values, "tool_name") if kind == "tool_call" else text_has(values)


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
    if kind is None or kind in _MUST:
        return kind
    context.problems.error(
        code="unknown-kind",
        message=f"`{name}` has no kind {quote(kind)}",
        at=entry.value,
        help=did_you_mean(kind, _MUST, _MUST_SYNONYMS),
    )
    return None


def _plain_must(must: Calls | TextHas) -> dict[str, Any]:
    if isinstance(must, Calls):
        where = {} if must.where is None else {"where": plain_where(must.where)}
        return {"kind": "tool_call", "tool_name": list(must.tools), **where}
    return {"kind": "text_includes", "text": must.text, "regex": must.regex, "ignore_case": must.ignore_case}


def _must_schema(kind: str, params: tuple[Param, ...]) -> dict[str, Any]:
    schema = params_schema(params)
    schema["properties"] = {"kind": {"const": kind}, **schema["properties"]}
    schema["required"] = ["kind", *schema["required"]]
    return schema


PARAMS = (
    Param("trigger", TRIGGER, "the conditions that make a turn a trigger", required=True),
    Param(
        "must",
        ParamType(_read_must, {"$ref": "#/$defs/must"}, plain=_plain_must),
        "what the next turn must do",
        required=True,
    ),
)

DEFINITIONS = {"must": {"oneOf": [_must_schema(kind, params) for kind, params in _MUST.items()]}}

SYNONYMS = "follow_up must_follow"

EXAMPLE = """\
- id: confirm-after-quote
  kind: must_followup
  scope: session
  params:
    trigger:
      - { path: response.content, op: contains, value: quote_total }
    must: { kind: tool_call, tool_name: confirm_with_user }
"""


def lower(params: Values) -> Next:
    return Next(trigger=params["trigger"], must=params["must"])
