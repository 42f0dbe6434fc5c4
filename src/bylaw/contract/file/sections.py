"""The short sections: `golden_prompts` and `variations` → Prompts, `scoring` → what each part weighs in `bylaw ci`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bylaw.contract.file.types import WEIGHT, Table, keyword, list_items, subtree, whole
from bylaw.contract.model import Conversation, Prompt, Scoring, Variation
from bylaw.contract.variations import KINDS
from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode
from bylaw.rules.params import FLAG, NAMES, TEXTS_SCHEMA, Context, Param, ParamType
from bylaw.rules.readers import read_text

ALL = "all"
_VARIATION = keyword(
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
_VARIATION_OPTIONS = Table(
    what="a variation",
    params=(
        Param("count", whole(1, 50, "a whole number from 1 to 50"), "how many of this kind", default=1),
        Param("invariants", NAMES, "the ids of those that must still hold; all where it is left out"),
    ),
    example="write `{count: 3}`, or nothing",
)
_VARIATION_NAMES: dict[str, Any] = {"enum": list(KINDS)}
_VARIATIONS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"const": ALL},
        _VARIATION_NAMES,
        {"type": "array", "items": _VARIATION_NAMES, "minItems": 1},
        {
            "type": "object",
            "propertyNames": _VARIATION_NAMES,
            "additionalProperties": {"anyOf": [_VARIATION_OPTIONS.schema(), {"type": "null"}]},
            "minProperties": 1,
        },
    ]
}


def _read_variations(node: Node, name: str, context: Context) -> tuple[Variation, ...] | None:
    if isinstance(node, ScalarNode) and node.value == ALL:
        return tuple(Variation(name=kind) for kind in KINDS)
    if isinstance(node, MapNode):
        return _read_variation_options(node, context)
    items: list[Node] = [node]
    if isinstance(node, ListNode):
        items = list_items(node, name, context, help="name one, or write `all`", empty="nothing is varied")
    names = [_VARIATION.read(item, name, context) for item in items]
    good = tuple(Variation(name=one) for one in dict.fromkeys(names) if one is not None)
    return good if good and None not in names else None


def _read_variation_options(node: MapNode, context: Context) -> tuple[Variation, ...] | None:
    found: list[Variation] = []
    for entry in node.entries.values():
        kind = _VARIATION.read(entry.key, "variations", context)
        is_empty = isinstance(entry.value, ScalarNode) and entry.value.value is None
        values = {} if is_empty else _VARIATION_OPTIONS.read(entry.value, context)
        if kind is not None and values is not None:
            found.append(Variation(name=kind, **values))
    return tuple(found) if found and len(found) == len(node.entries) else None


VARIATIONS = Param(
    "variations",
    ParamType(_read_variations, _VARIATIONS_SCHEMA),
    "other ways to ask it: `all`, names, or a mapping from names to options",
)


def _read_messages(node: Node, name: str, context: Context) -> str | None:
    """A prompt, or the conversation of a list of messages."""
    if not isinstance(node, ListNode):
        return read_text(node, name, context.problems)
    messages: tuple[str, ...] | None = NAMES.read(node, name, context)
    return None if not messages else messages[0] if len(messages) == 1 else Conversation(messages)


PROMPT = Table(
    what="a prompt",
    params=(
        Param(
            "prompt",
            ParamType(_read_messages, TEXTS_SCHEMA),
            "the text, or a list of messages of one conversation; either may stand alone as well",
            required=True,
            aliases=("messages",),
        ),
        Param("dangerous", FLAG, "whether the agent must refuse it", default=False),
        VARIATIONS,
    ),
    also={"prompt": "input question text", "dangerous": "unsafe"},
)
_WEIGHTS = Table(
    what="`scoring.weights`",
    params=(
        Param("check", WEIGHT, "what `check` weighs"),
        Param("diff", WEIGHT, "what `diff` weighs"),
        Param("contract", WEIGHT, "what `contract` weighs", aliases=("contract_compliance",)),
    ),
    unused=dict.fromkeys(
        ("mutation", "chaos", "replay"), "Bylaw does not run this part, and the other parts share its weight"
    ),
)
SCORING = replace(
    _WEIGHTS,
    what="`scoring`",
    params=(*_WEIGHTS.params, Param("weights", subtree(_WEIGHTS.schema()), "the same, one level deeper")),
)


def read_prompts(node: Node, context: Context) -> list[Prompt]:
    help = "start each prompt with `- `"
    items = list_items(node, "golden_prompts", context, help=help, empty="the agent is asked nothing")
    found = [_read_prompt(item, context) for item in items]
    return [prompt for prompt in found if prompt is not None]


def _read_prompt(node: Node, context: Context) -> Prompt | None:
    if not isinstance(node, MapNode):
        text = _read_messages(node, "golden_prompts", context)
        return None if text is None else Prompt(text, span=node.head)
    values = PROMPT.read(node, context)
    if values is None:
        return None
    return Prompt(values["prompt"], values["dangerous"], node.head, values.get("variations", ()))


def read_scoring(node: Node, context: Context) -> Scoring | None:
    """None where it is unusable. Weights need not add up to 1."""
    weights = SCORING.read(node, context)
    if weights and (inner := weights.get("weights")) is not None:
        if len(weights) > 1:
            context.problems.error(
                code="duplicate-parameter",
                message="`scoring` has weights of its own and `weights` inside",
                at=inner,
                help="keep one of them",
            )
            return None
        weights = _WEIGHTS.read(inner, context)
    if weights and not any(weights.values()) and isinstance(node, MapNode):
        context.problems.error(
            code="no-weight",
            message="all weights are 0, so there is no score",
            at=node.first_key,
            help="give a part a weight above 0, or remove `scoring`",
        )
        return None
    return None if weights is None else Scoring(dict(weights))
