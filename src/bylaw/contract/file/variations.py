"""`variations` → the variations of a golden prompt."""

from __future__ import annotations

from typing import Any

from bylaw.contract.file.types import Table, keyword, list_items, whole
from bylaw.contract.model import Variation
from bylaw.contract.variations import KINDS
from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode
from bylaw.rules.params import NAMES, Context, Param, ParamType, params_schema

ALL = "all"
_NAME = keyword(
    "unknown-type",
    "variation",
    tuple(KINDS),
    also={
        "base64": "encoding encoding_attacks encodings",
        "casing": "case caps uppercase",
        "filler": "fillers padding",
        "homoglyphs": "unicode",
        "injection": "injections prompt_injection",
        "long": "length length_extremes long_context",
        "other_language": "language multilingual",
        "reordered": "order reorder",
        "rude": "aggressive tone tone_shift",
        "synonyms": "paraphrase",
        "typos": "misspellings noise spelling typo",
        "whitespace": "spaces",
        "zero_width": "invisible",
    },
)
_OPTIONS = Table(
    what="a variation",
    params=(
        Param("count", whole(1, 50, "a whole number from 1 to 50"), "how many of this kind", default=1),
        Param("invariants", NAMES, "the ids of those that must still hold; all where it is left out"),
    ),
    example="write `{count: 3}`, or nothing",
)
_ONE: dict[str, Any] = {"enum": list(KINDS)}
_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"const": ALL},
        _ONE,
        {"type": "array", "items": _ONE, "minItems": 1},
        {
            "type": "object",
            "propertyNames": _ONE,
            "additionalProperties": {"anyOf": [params_schema(_OPTIONS.params), {"type": "null"}]},
            "minProperties": 1,
        },
    ]
}


def _read(node: Node, name: str, context: Context) -> tuple[Variation, ...] | None:
    if isinstance(node, ScalarNode) and node.value == ALL:
        return tuple(Variation(name=kind) for kind in KINDS)
    if isinstance(node, MapNode):
        return _read_mapping(node, context)
    items: list[Node] = [node]
    if isinstance(node, ListNode):
        items = list_items(node, name, context, help="name one, or write `all`", empty="nothing is varied")
    names = [_NAME.read(item, name, context) for item in items]
    good = tuple(Variation(name=one) for one in dict.fromkeys(names) if one is not None)
    return good if good and None not in names else None


def _read_mapping(node: MapNode, context: Context) -> tuple[Variation, ...] | None:
    found: list[Variation] = []
    for entry in node.entries.values():
        kind = _NAME.read(entry.key, "variations", context)
        is_empty = isinstance(entry.value, ScalarNode) and entry.value.value is None
        values = {} if is_empty else _OPTIONS.read(entry.value, context)
        if kind is not None and values is not None:
            found.append(Variation(name=kind, **values))
    return tuple(found) if found and len(found) == len(node.entries) else None


VARIATIONS = ParamType(_read, _SCHEMA)
PARAM = Param("variations", VARIATIONS, "other ways to ask it: `all`, names, or a mapping from names to options")
