"""A prompt → the rules it states, ready for the engine.

Two kinds of statements are read: conditions in the section of a tool (`preconditions`), and demands by their grammar
(`statements`). The rules found are then parsed like those of any rule file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from bylaw.comply.model import EngineItem, PromptRule, PromptRules, ToolSpec
from bylaw.comply.prompt.binding import bind
from bylaw.comply.prompt.clauses import MAX_SENTENCE, label_of, read_clauses, read_sentence
from bylaw.comply.prompt.comparisons import stated_today
from bylaw.comply.prompt.layout import Statement, read_layout
from bylaw.comply.prompt.lines import MAX_PROMPT, limits_scope
from bylaw.comply.prompt.markers import TAKES_BACK, Force, find_marker, takes_back
from bylaw.comply.prompt.preconditions import read_preconditions
from bylaw.comply.prompt.readings import shorten
from bylaw.comply.prompt.statements import list_unread, read_statement, read_steps
from bylaw.comply.prompt.vocabulary import Tools, any_case, root_set, roots
from bylaw.model.ports import Embedder
from bylaw.model.rule import RuleSet
from bylaw.rules.loader import parse_rules

_EXCEPTED = "the next sentence makes an exception"
_PERMITTED = "a later sentence permits it in some cases"
_MAY = any_case(r"\b(?:may|can|are allowed to|is allowed)\b")
_LABEL_WORDS = root_set(
    """important critical note notes rule rules policy policies warning warnings security safety reminder remember
    general always caution attention constraint constraints requirement requirements guideline guidelines instruction
    instructions forbidden prohibited banned disallowed off limits tool tools function functions call calls
    action actions not allowed permitted
    you must may should shall can never do don t use run strictly absolutely the these all following agent assistant
    be called used key main hard core absolute golden first second third rule1 priority high mandatory required
    compliance privacy are is that which please also and or of usage guardrail guardrails limit boundary boundaries
    what how to info step system your job task"""
)
"""labels of these words limit nothing: `Important: never call A`"""
_FRONT = any_case(
    r"\s*(?!(?:never|always|do not|don't|only|must|before|after|if|when|unless|for)\b)([^:`\"]{1,300}?):\s+(?=\S)"
)
"""a sentence before a colon: `Medical texts must be revised, whatever happens: call A after B`"""
_CLASS = any_case(
    r"\W*(?!(?:the|this|that|these|those|it|you|we|they|all|any|every|each|always|never|as|is)\b)"
    r"(?P<things>[a-z][\w'-]*(?: [a-z][\w'-]*){0,2}?(?<=[^su\W]s))\b(?! [\w'-]*s\b)[^:;]*?,? so (?=\S)"
)
"""`Season passes are not refundable, so …`: the rule holds for them"""
_STEPS = any_case(
    r"\W*(?:first,? )?(?:call|use|run|invoke)\b(?!.*\b(?:always|must|before|after|every|each|never|any)\b).*\bthen\b"
)
"""`People who are stuck come first. Call A, then call B.`"""
_UNIVERSAL = any_case(r"\b(?:never|always|under no|at no|in no case|every|each|all|any|forbidden|prohibited)\b")
_MOST_OWN_SENTENCES = 12
MAX_STATEMENTS = 3_000
"""read by grammar, at about a millisecond each; the rest is reported as unread"""
_UNREAD = "rest-of-the-prompt"
"""the id of the rule that stands for the unread rest"""
_ADDRESSES_THE_AGENT = any_case(
    r"\W*(?:never|always|do not|don't|only|confirm|ask|before|after|first|under no|at most|refuse|decline|deny)\b"
)
"""how a sentence begins that says what the agent does; others say what must hold"""


def read_prompt(
    prompt: str,
    *,
    tools: Sequence[ToolSpec] = (),
    aliases: Mapping[str, Sequence[str]] | None = None,
    today: str | None = None,
    embedder: Embedder | None = None,
) -> PromptRules:
    """`today`: the day of the trace, for a prompt that does not say it. `embedder`: a second vote on bindings."""
    rules = extract_rules(prompt, tools=tools, aliases=aliases or {}, today=today, embedder=embedder)
    return parse_prompt_rules(prompt, rules)


def prompt_hash(prompt: str) -> str:
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


# -- extraction --------------------------------------------------------------------------------------------------------


def extract_rules(
    prompt: str,
    *,
    tools: Sequence[ToolSpec] = (),
    aliases: Mapping[str, Sequence[str]] | None = None,
    today: str | None = None,
    embedder: Embedder | None = None,
) -> tuple[PromptRule, ...]:
    """Every rule found, in the order of the prompt, each with an id of its own and its place."""
    known = {tool.name for tool in tools}
    statements = read_layout(prompt, known)
    named = dict.fromkeys(one.tool for one in statements if one.tool is not None and one.tool not in known)
    every = Tools(
        [*tools, *(ToolSpec(name=name) for name in named)],
        aliases,
        today=stated_today(prompt) or today,
        embedder=embedder,
    )
    every.sentences = _own_sentences(statements)
    read = statements[:MAX_STATEMENTS]
    found = [_read(statement, every) for statement in read]
    for index, statement in enumerate(read[1:], 1):
        if takes_back(statement.text[:MAX_SENTENCE], is_tied=not statement.leads or statement.is_below):
            _except(found, read, index)
        elif _MAY.search(statement.text[:MAX_SENTENCE]):
            _permit(found, read, index, every)
    rules = [rule for some in found for rule in some]
    for introduction, steps in _step_lists(read):
        ordered = read_steps(steps, every, introduction=introduction)
        names = {step.start for step in steps if ordered and step.text.strip(" .;`*") in every.specs}
        rules = [rule for rule in rules if rule.start not in names] + ordered  # a step that is only a name is read here
    if len(statements) > MAX_STATEMENTS:
        rules.append(_unread(statements[MAX_STATEMENTS:]))
    return tuple(_with_ids(rules))


def _own_sentences(statements: Sequence[Statement]) -> tuple[str, ...]:
    """Some sentences that nobody says by chance, without places that are filled in."""
    fits = (one.text for one in statements if 60 <= len(one.text) <= 200 and not set('{}<>[]`*"') & set(one.text))
    return tuple(islice(dict.fromkeys(fits), _MOST_OWN_SENTENCES))


def _read(statement: Statement, tools: Tools) -> list[PromptRule]:
    """In the section of a tool a sentence is a precondition of the tool, unless it addresses the agent."""
    if statement.tool is None:
        stated = read_statement(statement, tools)
        return [_leave_open(rule, why) for rule in stated] if (why := _limit_of(statement, tools)) else stated
    found = _read_in_section(statement, tools)
    why = _limit_of(statement, tools, in_section=True)
    return [_leave_open(rule, why) for rule in found] if why else found


def _read_in_section(statement: Statement, tools: Tools) -> list[PromptRule]:
    if _ADDRESSES_THE_AGENT.match(statement.text):
        stated = read_statement(statement, tools)
        if any(rule.items for rule in stated):
            return stated
    preconditions = list(read_preconditions(statement, tools))
    if any(rule.items for rule in preconditions):
        return preconditions
    return preconditions or read_statement(statement, tools) or list_unread(statement, tools)


def _limit_of(statement: Statement, tools: Tools, *, in_section: bool = False) -> str:
    """Why a sentence that reads like a rule for all cases is not one. In a tool's section, all is about its calls."""
    if statement.under:
        return f"it stands under `{shorten(statement.under)}`"
    if statement.denied and not statement.forbidden:
        return f"it stands under `{shorten(statement.denied)}`"
    label = label_of(statement.text)
    if label and (limits_scope(label) or not _is_harmless(label, statement.text, tools)):
        return f"it stands under `{shorten(label)}`"
    if why := _why_partial(statement.text[:MAX_SENTENCE], tools):
        return why
    if not statement.leads and _STEPS.match(statement.text[:MAX_SENTENCE]):
        return "it may belong to what the sentence before it is about"
    if statement.follows_condition and not in_section and not _UNIVERSAL.search(statement.text):
        return "a sentence before it has a condition that may hold for it too"
    if any(map(_takes_back, statement.text[:MAX_SENTENCE].split(";")[1:])):
        return "another part of it makes an exception"
    return ""


def _is_harmless(label: str, text: str, tools: Tools) -> bool:
    """`Important:`, or `Refunds:` before a sentence about refunds; `Guests:` and `Myth:` limit what they label."""
    if label in tools.specs or "_" in label:
        return True
    behind = text[text.find(":") :][:MAX_SENTENCE]
    return all(word.isdigit() for word in set(roots(label)) - _LABEL_WORDS - set(roots(behind)))


def _why_partial(text: str, tools: Tools) -> str:
    """Why the reason in front of a rule says for what it holds; a reason that only forbids is read with its rule."""
    front = _FRONT.match(text)
    marker = find_marker(front[1]) if front else None
    if front and not (marker and marker.force is Force.FORBID) and not any(name in front[1] for name in tools.specs):
        return "" if _is_harmless(front[1], text, tools) else f"it stands under `{shorten(front[1])}`"
    found = _CLASS.match(text) if " so " in text else None
    if found is None:
        return ""
    known = {root for name in tools.specs for root in roots(name)} | _LABEL_WORDS | set(roots("user customer client"))
    return "" if set(roots(found["things"])) <= known else f"it is said of `{found['things']}`"


def _takes_back(part: str) -> bool:
    marker = find_marker(part)
    return bool(TAKES_BACK.search(part) or (marker and marker.force in (Force.PERMIT, Force.WAIVE)))


def _except(found: list[list[PromptRule]], read: Sequence[Statement], index: int) -> None:
    """Leave open the rules of the two sentences before this one, if they stand in one paragraph."""
    for before in range(index - 1, max(index - 3, -1), -1):
        found[before] = [_leave_open(rule, _EXCEPTED) for rule in found[before]]
        if read[before].leads:
            break


def _permit(found: list[list[PromptRule]], read: Sequence[Statement], index: int, tools: Tools) -> None:
    """`if we cancelled the flight, you may refund without approval`: what is said above of the tool is not all."""
    sentence = read_sentence(read[index].text, tools) if len(read[index].text) <= MAX_SENTENCE else None
    for clause in read_clauses(sentence) if sentence else ():
        marker = find_marker(clause.main.text)
        if sentence is None or marker is None or marker.force is not Force.PERMIT or not clause.parts:
            continue
        names = [f"call_tool: {name}" for name in bind(clause.main.text, sentence).tools if name != "*"]
        for before in range(index - 1, -1, -1):
            if read[before].block != read[index].block:
                break
            found[before] = [
                _leave_open(rule, _PERMITTED)
                if any(name in f"{rule.trigger} {rule.forbidden_action}" for name in names)
                and not any(one.aspect in ("argument", "count") for one in rule.items)
                else rule
                for rule in found[before]
            ]


def _leave_open(rule: PromptRule, why: str) -> PromptRule:
    return replace(rule, items=(), undecided=rule.undecided or why)


def _step_lists(statements: Sequence[Statement]) -> Iterator[tuple[str, list[Statement]]]:
    """Numbered items that follow each other, with the sentence before them, outside the sections of tools."""
    introduction, steps, block = "", list[Statement](), 0
    for statement in statements:
        if statement.block != block:  # a heading ends what stands above it
            if len(steps) > 1:
                yield introduction, steps
            introduction, steps, block = "", [], statement.block
        if statement.numbered and statement.tool is None:
            if statement.leads:
                steps.append(statement)
            elif steps and takes_back(statement.text[:MAX_SENTENCE], is_tied=True):
                steps[-1].follows_condition = True  # `Call A. Skip this if …`
            continue
        if len(steps) > 1:
            yield introduction, steps
        introduction, steps = statement.text, []
    if len(steps) > 1:
        yield introduction, steps


def _unread(statements: Sequence[Statement]) -> PromptRule:
    return PromptRule(
        rule_id=_UNREAD,
        description=f"{len(statements):,} sentences after the first {MAX_STATEMENTS:,}",
        start=statements[0].start,
        end=statements[-1].end,
        undecided=f"only the first {MAX_STATEMENTS:,} sentences are read",
    )


def _with_ids(rules: Iterable[PromptRule]) -> Iterator[PromptRule]:
    """The rules in the order of the prompt, each with an id of its own; so are their items."""
    taken: dict[str, int] = {}
    for rule in sorted(rules, key=lambda rule: rule.start):
        rule_id = _free_id(rule.rule_id, taken)
        items = []
        for one in rule.items:
            item_id = rule_id if len(rule.items) == 1 else _free_id(f"{rule_id}-{one.aspect}", taken)
            items.append(EngineItem({**one.item, "id": item_id}, one.aspect, one.tier))
        yield replace(rule, rule_id=rule_id, items=tuple(items), tier=rule.tier if items else None)


def _free_id(name: str, taken: dict[str, int]) -> str:
    """The name, or the name with the next number; `taken` has the last number of each name."""
    number = taken.get(name, 0) + 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    taken[name] = number
    taken.setdefault(free, 1)
    return free


# -- engine rules ------------------------------------------------------------------------------------------------------


def parse_prompt_rules(prompt: str, rules: Sequence[PromptRule]) -> PromptRules:
    """INVARIANT: an item that the engine cannot run makes its rule undecided; the rule never disappears."""
    taken: dict[str, int] = {}
    rules = [replace(rule, items=tuple(_item(one, rule, taken) for one in rule.items)) for rule in rules]
    owners = {one.item["id"]: rule.rule_id for rule in rules for one in rule.items}
    items = [one.item for rule in rules for one in rule.items]
    found = parse_rules(json.dumps(items), file="<prompt>", format="json") if items else RuleSet(())
    why = "; ".join(dict.fromkeys(problem.message for problem in found.diagnostics if problem.is_error))
    parsed = {rule.id for rule in found.rules}
    return PromptRules(
        sha256=prompt_hash(prompt),
        rules=tuple(rules),
        engine=tuple(replace(rule, span=None) for rule in found.rules),
        owners={item: rule for item, rule in owners.items() if item in parsed},
        unusable={rule: f"a part of it cannot be run: {why}" for item, rule in owners.items() if item not in parsed},
        notes=_notes(prompt, rules),
    )


def _item(one: EngineItem, rule: PromptRule, taken: dict[str, int]) -> EngineItem:
    """The item with an id of its own. A prompt speaks about each conversation, so its rules have session scope."""
    item_id = _free_id(str(one.item.get("id", rule.rule_id)), taken)
    return EngineItem({"id": item_id, "scope": "session"} | one.item | {"id": item_id}, one.aspect, one.tier)


def _notes(prompt: str, rules: Sequence[PromptRule]) -> tuple[str, ...]:
    if not prompt.strip():
        return ("the prompt is empty",)
    if len(prompt) > MAX_PROMPT:
        return (f"only the first {MAX_PROMPT:,} characters of the prompt were read",)
    return tuple(rule.undecided for rule in rules if rule.rule_id == _UNREAD and rule.undecided)
