"""`scoring` → what each part weighs in `bylaw ci`."""

from __future__ import annotations

from bylaw.contract.file.types import number
from bylaw.contract.model import Scoring
from bylaw.rules.fields import Fields
from bylaw.rules.located import MapNode, Node
from bylaw.rules.params import Context
from bylaw.rules.readers import read_map, report_wrong_type

PARTS = {"check": "check", "diff": "diff", "contract": "contract", "contract_compliance": "contract"}
"""the keys, and the part that each is for"""

ELSEWHERE = ("mutation", "chaos", "replay")
"""parts that other tools score, and Bylaw does not run"""


def read_scoring(node: Node, context: Context) -> Scoring | None:
    """None where it is unusable. Weights need not add up to 1."""
    mapping = read_map(node, "scoring", context.problems)
    if mapping is None:
        return None
    fields = Fields(mapping, context.problems, what="`scoring`")
    weights = _read_weights(fields, context)
    for key in ELSEWHERE:
        if entry := fields.entry(key):
            context.problems.warn(
                code="key-not-used",
                message=f"`{key}` of `scoring` is not used: Bylaw runs no such part",
                at=entry.key,
                help="the other parts share its weight",
            )
    fields.finish(shown=PARTS)
    if weights and not any(weights.values()):
        _report_no_weight(mapping, context)
        return None
    return None if weights is None else Scoring(weights)


def _read_weights(fields: Fields, context: Context) -> dict[str, float] | None:
    weights: dict[str, float] = {}
    usable = True
    for key, part in PARTS.items():
        entry = fields.entry(key)
        if entry is None:
            continue
        weight = number(entry.value)
        if weight is None or weight < 0:
            report_wrong_type(entry.value, f"`{key}`", "a number from 0 up", context.problems)
            usable = False
        elif part in weights:
            context.problems.error(
                code="duplicate-parameter",
                message=f"`{key}` and `{part}` give the same weight",
                at=entry.key,
                help="keep one of them",
                related=(context.problems.related(fields.node.entries[part].key, "the other one"),),
            )
            usable = False
        else:
            weights[part] = weight
    return weights if usable else None


def _report_no_weight(mapping: MapNode, context: Context) -> None:
    context.problems.error(
        code="no-weight",
        message="all weights are 0, so there is no score",
        at=mapping.first_key,
        help="give a part a weight above 0, or remove `scoring`",
    )
