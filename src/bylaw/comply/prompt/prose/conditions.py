"""The parts that hang on a clause: what an `if`, `unless`, `before` or `after` comes to, as far as events show it."""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.comply.prompt.prose.arguments import find_bound, find_choice, find_state
from bylaw.comply.prompt.prose.binding import Bound
from bylaw.comply.prompt.prose.clauses import Part
from bylaw.comply.prompt.prose.dialogue import asks_user
from bylaw.comply.prompt.prose.lowering import ArgTest, Field, atom, pattern
from bylaw.comply.prompt.prose.reading import View
from bylaw.comply.prompt.prose.texts import find_words

_FAILS = re.compile(
    r"\b(?:fail(?:s|ed)?|errors?|(?:return|throw|raise)s? an? (?:error|exception)|unsuccessful"
    r"|is not successful|does not succeed)\b",
    re.IGNORECASE,
)
_USER_SAYS = re.compile(
    r"\b(?:user|customer|client|caller|they|human)\b[^.]{0,40}?\b(?:say|said|type|typed|types|write|writes"
    r"|wrote|mention|message|repl|answer|ask|enter|contain|include|use)",
    re.IGNORECASE,
)

_NOT = re.compile(r"\b(?:not|never|no)\b|n't\b", re.IGNORECASE)
_OR = re.compile(r"\bor\b", re.IGNORECASE)


class Condition(Struct, frozen=True):
    """One hanging part, read. At most one of the fields is set; none: events do not show it."""

    part: Part
    told: str
    """as it is written"""
    tests: tuple[ArgTest, ...] = ()
    state: Field | None = None
    tools: Bound = Bound()
    failed: bool = False
    """the tools' calls came back with an error"""
    agreed: bool = False
    """the user agreed"""
    said: str = ""
    """a formula: the user said it"""
    is_negated: bool = False
    """it speaks of what was not called or not agreed to"""

    @property
    def is_read(self) -> bool:
        return bool(self.tests or self.state or self.tools or self.agreed or self.said)

    @property
    def reason(self) -> str:
        return f"no event shows whether `{self.told}` holds"

    def trigger(self) -> str:
        if self.failed:
            return atom(self.tools.tools, (), of="result")[:-1] + ", error = true)"
        return atom(self.tools.tools)


def read_condition(view: View, part: Part, actor: Bound) -> Condition:
    """What a part says; `actor` are the tools whose calls it limits."""
    text, told, literals = part.text, view.told(part), view.literals(part)
    subject = actor.tools
    if tests := _tests(view, part, subject):
        return Condition(part, told) if view.narrowing(text, actor, tests) else Condition(part, told, tests)
    if len(subject) == 1 and (state := find_state(text, part.start, literals, subject[0], view.context)):
        shown = [(name, "present", None) for name in (state.name, *state.joined)]
        return Condition(part, told) if view.narrowing(text, actor, shown) else Condition(part, told, state=state)
    is_negated = _NOT.search(text) is not None
    if tools := _other_tools(view, text, subject):
        if _OR.search(text) and len(tools.tools) == 1:
            return Condition(part, told)
        failed = _FAILS.search(text) is not None
        return Condition(part, told, tools=tools, failed=failed, is_negated=is_negated)
    if asks_user(text):
        return Condition(part, told, agreed=True, is_negated=is_negated)
    if _USER_SAYS.search(text) and (words := find_words(f"say {text}", view.words_to_say(part))):
        atoms = [f"user({pattern(literal)})" for literal in words.literals]
        either = atoms[0] if len(atoms) == 1 else f"({' | '.join(atoms)})"
        return Condition(part, told, said=either, is_negated=is_negated)
    return Condition(part, told)


def _other_tools(view: View, text: str, subject: tuple[str, ...]) -> Bound:
    tools = view.bind(text, likeness=False)
    others = tuple(tool for tool in tools.tools if tool not in subject and tool != "*")
    return Bound(others, tools.tier, tools.confidence, tools.is_named, tools.is_choice)


def _tests(view: View, part: Part, subject: tuple[str, ...]) -> tuple[ArgTest, ...]:
    if not subject:
        return ()
    if (bound := find_bound(part.text, subject, view.context)) and bound.tests:
        return bound.tests
    choice = find_choice(part.text, view.literals(part), subject, view.context)
    return choice.tests if choice else ()
