"""One sentence of a system prompt → the rules it states, by grammar alone.

`sentence` takes away what demands nothing (quotes, examples, questions); `clauses` divides what is left into main parts
and what hangs on them; `markers` says whether a clause forbids, demands, reserves or merely allows. Then one of
`forbidding`, `requiring` and `reserving` reads it, with the help of `binding` (phrase → tools), `conditions`,
`gating`, `arguments`, `counts`, `dialogue`, `texts` and `turns`, into drafts of engine rules (`lowering`). A demand
that cannot be tied to events becomes a rule with no items and the reason, so that nothing is passed over in silence.
`listing` reads lists with their introductions, and numbered steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.model import PromptRule, ToolSpec
from bylaw.comply.prompt.prose.context import Tools
from bylaw.comply.prompt.prose.listing import read_list, read_steps
from bylaw.comply.prompt.prose.statement import read_with, renamed


def read_statement(
    statement: Statement, tools: Sequence[ToolSpec], aliases: Mapping[str, Sequence[str]]
) -> list[PromptRule]:
    """The rules of one statement, with the list it introduces; none where it demands nothing."""
    known = Tools(tools, aliases)
    return read_list(statement, known) if statement.parts else read_with(statement, known)


__all__ = ["Tools", "read_list", "read_statement", "read_steps", "read_with", "renamed"]
