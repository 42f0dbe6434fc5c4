"""`sequence: [error, ok, {mode: slow, delay_ms: 50}]`: what happens to the first call, the second, the third."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.contract.file.modes import TARGET, TOOL_FAULT
from bylaw.contract.file.types import report_never_fires
from bylaw.contract.file.variants import Variant
from bylaw.contract.file.words import FAULT_KEY_WORDS
from bylaw.rules.fields import Fields
from bylaw.rules.located import Entry, ListNode, MapNode, Node, ScalarNode
from bylaw.rules.params import Context, Param, Values, take_params
from bylaw.rules.readers import report_wrong_type

OK = "ok"
"""a step at which nothing goes wrong"""


def read_sequence(node: MapNode, context: Context) -> list[tuple[Values, int, Variant]]:
    """Of each step that is no `ok`: what it hits, the number of the call, and the fault."""
    fields = Fields(node, context.problems, what="a tool fault with `sequence`")
    target = take_params(fields, TARGET, context)
    TOOL_FAULT.require_one(fields)
    entry = fields.entry("sequence")
    assert entry is not None
    hints = {param.name: f"put `{param.name}` into a step of the sequence" for param in _of_modes()}
    timing = dict.fromkeys(("probability", "after_calls", "nth"), "a sequence says itself which calls it hits")
    fields.finish(synonyms=FAULT_KEY_WORDS, hints={**hints, **timing, "mode": "the steps of the sequence have modes"})
    steps = list(_read_steps(entry, context))
    if target is None or any(step is None for _, step in steps):
        return []
    return [(target, call, step) for call, step in steps if step is not None]


def _of_modes() -> Iterator[Param]:
    return (param for params in TOOL_FAULT.kinds.values() for param in params)


def _read_steps(entry: Entry, context: Context) -> Iterator[tuple[int, Variant | None]]:
    node = entry.value
    if not isinstance(node, ListNode):
        report_wrong_type(node, "`sequence`", "a list", context.problems, help="write `[error, ok]`, say")
        return
    wrong = [(call, item) for call, item in enumerate(node.items, 1) if not _is_ok(item)]
    if not wrong:
        report_never_fires(node, "with nothing but `ok` in its sequence", context.problems)
    for call, item in wrong:
        yield call, _read_step(item, context)


def _is_ok(item: Node) -> bool:
    return isinstance(item, ScalarNode) and item.value == OK


def _read_step(item: Node, context: Context) -> Variant | None:
    if isinstance(item, MapNode):
        return TOOL_FAULT.read(item, context, alone=True)
    mode = TOOL_FAULT.tag.read(item, "sequence", context)
    bare = MapNode(item.source, item.start, item.end, {})
    return TOOL_FAULT.read(bare, context, tag=mode, alone=True) if mode else None
