"""The short sections: `golden_prompts` → Prompts, and `scoring` → what each part weighs in `bylaw ci`."""

from __future__ import annotations

from dataclasses import replace

from bylaw.contract.file.types import WEIGHT, Table, list_items, subtree
from bylaw.contract.file.variations import PARAM as VARIATIONS
from bylaw.contract.model import Conversation, Prompt, Scoring
from bylaw.rules.located import ListNode, MapNode, Node
from bylaw.rules.params import FLAG, NAMES, TEXTS_SCHEMA, Context, Param, ParamType, params_schema
from bylaw.rules.readers import read_text


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
_WEIGHTS_SCHEMA = params_schema(_WEIGHTS.params)
_WEIGHTS_SCHEMA["properties"] |= {key: {} for key in _WEIGHTS.unused}
SCORING = replace(
    _WEIGHTS,
    what="`scoring`",
    params=(*_WEIGHTS.params, Param("weights", subtree(_WEIGHTS_SCHEMA), "the same, one level deeper")),
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
