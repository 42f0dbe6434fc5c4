"""The conditions listed under a tool → rules about calls of that tool."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.comply.prompt.binding import Binder
from bylaw.comply.prompt.conditions import Formulas, Open, is_condition, read_condition
from bylaw.comply.prompt.layout import Statement, plain_text
from bylaw.comply.prompt.model import Aspect, EngineItem, PromptRule, Tier, ToolSpec


def read_section_statement(statement: Statement, binder: Binder, *, listed: bool = False) -> Iterator[PromptRule]:
    """A list that demands all of its items is as many rules; one that demands any of them is one rule."""
    if statement.junction in ("all", "chain"):
        for part in statement.parts:
            yield from read_section_statement(part, binder, listed=True)
    elif statement.tool is not None and is_condition(statement, listed=listed):
        action = binder.tools.get(statement.tool, ToolSpec(name=statement.tool))
        yield _rule(statement, action, read_condition(statement, action, binder))


def _rule(statement: Statement, action: ToolSpec, condition: Formulas | Open) -> PromptRule:
    end = statement.parts[-1].end if statement.parts else statement.end
    text = " ".join(plain_text(one.text) for one in (statement, *statement.parts))
    known = condition if isinstance(condition, Formulas) else None
    return PromptRule(
        rule_id=f"{action.name}-condition",
        description=text,
        start=statement.start,
        end=end,
        trigger=f"call_tool: {action.name}",
        forbidden_action=f"call_tool: {action.name}, unless this holds",
        severity="high",
        tier=known.tier if known else Tier.CERTAIN,
        confidence=known.confidence if known else 1.0,
        items=_items(known, action, text) if known else (),
        undecided=condition.reason if isinstance(condition, Open) else None,
    )


def _items(condition: Formulas, action: ToolSpec, text: str) -> tuple[EngineItem, ...]:
    items = []
    if condition.asked is not None:
        items.append(EngineItem(_temporal(condition.asked, condition, action, text), "order"))
    if condition.held is not None:
        aspect: Aspect = "state" if condition.asked is not None else "argument"
        items.append(EngineItem(_temporal(condition.held, condition, action, text), aspect))
    return tuple(items)


def _temporal(demand: str, condition: Formulas, action: ToolSpec, text: str) -> dict[str, object]:
    used = [(argument, name) for argument, name in condition.variables if f"${name}" in demand]
    call = ", ".join((action.name, *(f"args.{argument} = ${name}" for argument, name in used)))
    return {
        "kind": "temporal",
        "severity": "error",
        "scope": "session",
        "description": text,
        "params": {"formula": f"G (tool({call}) -> {demand})"},
    }
