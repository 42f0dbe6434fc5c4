"""`golden_prompts` → Prompts: texts, or `{prompt, dangerous}`."""

from __future__ import annotations

from bylaw.contract.model import Prompt
from bylaw.rules.fields import Fields
from bylaw.rules.located import ListNode, MapNode, Node
from bylaw.rules.params import Context
from bylaw.rules.readers import read_flag, read_text, report_wrong_type

KEY_WORDS = {"input": "prompt", "question": "prompt", "text": "prompt", "unsafe": "dangerous"}


def read_prompts(node: Node, context: Context) -> list[Prompt]:
    if not isinstance(node, ListNode):
        help = "start each prompt with `- `"
        report_wrong_type(node, "`golden_prompts`", "a list", context.problems, help=help)
        return []
    if not node.items:
        context.problems.error(
            code="empty-value", message="`golden_prompts` is empty, so the agent is asked nothing", at=node
        )
    found = [_read_prompt(item, context) for item in node.items]
    return [prompt for prompt in found if prompt is not None]


def _read_prompt(node: Node, context: Context) -> Prompt | None:
    problems = context.problems
    if not isinstance(node, MapNode):
        text = read_text(node, "golden_prompts", problems)
        return None if text is None else Prompt(text, span=node.head)
    fields = Fields(node, problems, what="a prompt")
    text_node = fields.require("prompt", help="write `{prompt: …, dangerous: true}`, or the text alone")
    flag = fields.take("dangerous")
    fields.finish(synonyms=KEY_WORDS)
    text = read_text(text_node, "prompt", problems) if text_node else None
    dangerous = read_flag(flag, "dangerous", problems) if flag else False
    return None if text is None or dangerous is None else Prompt(text, dangerous, node.head)
