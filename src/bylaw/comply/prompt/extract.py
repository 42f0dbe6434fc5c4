"""A prompt → the rules it states: the conditions under its tools, and what its prose demands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from bylaw.comply.prompt.binding import Binder
from bylaw.comply.prompt.layout import Statement, read_layout
from bylaw.comply.prompt.model import EngineItem, PromptRule, ToolSpec
from bylaw.comply.prompt.prose import Tools, read_list, read_steps, read_with
from bylaw.comply.prompt.sections import read_section_statement

MAX_STATEMENTS = 3_000
"""read by grammar, at about a millisecond each; what follows is said to be unread"""
UNREAD = "rest-of-the-prompt"
"""the id under which the unread rest stands, so that it is never taken for nothing"""
_TO_THE_AGENT = re.compile(
    r"\W*(?:never|always|do not|don't|only|confirm|ask|before|after|first|under no|at most|refuse|decline|deny)\b",
    re.IGNORECASE,
)
"""how a sentence begins that tells the agent what to do, where others say what must hold"""


def extract_rules(
    prompt: str, *, tools: Sequence[ToolSpec] = (), aliases: Mapping[str, Sequence[str]] | None = None
) -> tuple[PromptRule, ...]:
    """Every rule found, in the order of the prompt, each with an id of its own and its place."""
    statements = read_layout(prompt, {tool.name for tool in tools})
    known = {tool.name for tool in tools}
    named = dict.fromkeys(s.tool for s in statements if s.tool is not None and s.tool not in known)
    every = [*tools, *(ToolSpec(name=name) for name in named)]
    return tuple(_numbered(_Extraction(every, aliases or {}).read(statements)))


class _Extraction:
    def __init__(self, tools: Sequence[ToolSpec], aliases: Mapping[str, Sequence[str]]) -> None:
        self._specs = tools
        self._aliases = aliases
        self._binder = Binder(tools, aliases)
        self._prose = Tools(tools, aliases)

    def read(self, statements: Sequence[Statement]) -> Iterator[PromptRule]:
        for statement in statements[:MAX_STATEMENTS]:
            yield from self._statement(statement)
        for introduction, steps in _step_lists(statements[:MAX_STATEMENTS]):
            yield from read_steps(steps, self._specs, self._aliases, introduction=introduction)
        if len(statements) > MAX_STATEMENTS:
            yield _unread(statements[MAX_STATEMENTS:])

    def _statement(self, statement: Statement) -> list[PromptRule]:
        if statement.tool is None:
            return self._told(statement)
        told = self._told(statement)
        if _TO_THE_AGENT.match(statement.text) and any(rule.items for rule in told):
            return told
        listed = list(read_section_statement(statement, self._binder))
        return listed if any(rule.items for rule in listed) else told or listed

    def _told(self, statement: Statement) -> list[PromptRule]:
        return read_list(statement, self._prose) if statement.parts else read_with(statement, self._prose)


def _step_lists(statements: Sequence[Statement]) -> Iterator[tuple[str, list[Statement]]]:
    """Numbered items that follow each other, with the sentence before them, outside the sections of tools."""
    introduction, steps = "", list[Statement]()
    for statement in statements:
        if statement.numbered and statement.tool is None:
            steps += [statement] if statement.leads else []
            continue
        if len(steps) > 1:
            yield introduction, steps
        introduction, steps = statement.text, []
    if len(steps) > 1:
        yield introduction, steps


def _unread(statements: Sequence[Statement]) -> PromptRule:
    return PromptRule(
        rule_id=UNREAD,
        description=f"{len(statements):,} sentences after the first {MAX_STATEMENTS:,}",
        start=statements[0].start,
        end=statements[-1].end,
        undecided=f"only the first {MAX_STATEMENTS:,} sentences are read",
    )


def _numbered(rules: Iterable[PromptRule]) -> Iterator[PromptRule]:
    """In the order of the prompt, with ids that no other rule has, also for each rule's items."""
    taken: set[str] = set()
    for rule in sorted(rules, key=lambda rule: rule.start):
        rule_id = _free(rule.rule_id, taken)
        yield replace(rule, rule_id=rule_id, items=tuple(_with_ids(rule_id, rule.items, taken)))


def _with_ids(rule_id: str, items: Sequence[EngineItem], taken: set[str]) -> Iterator[EngineItem]:
    for one in items:
        own = rule_id if len(items) == 1 else _free(f"{rule_id}-{one.aspect}", taken)
        yield EngineItem({**one.item, "id": own}, one.aspect)


def _free(name: str, taken: set[str]) -> str:
    free = next(one for number in count(1) if (one := name if number == 1 else f"{name}-{number}") not in taken)
    taken.add(free)
    return free
