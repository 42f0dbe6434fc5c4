"""A system prompt → the rules it states, ready for the engine.

`lines` and `layout` divide a prompt into statements, and this file puts the rules together. A sentence in the section
of a tool is a condition on calls of that tool: `preconditions` reads it, and `lookups` finds the tools that can show
it. Any other sentence is read by its grammar: `statements` → `clauses` → `markers` → one of `prohibitions` and
`obligations`, with the help of `order`, `prior_calls`, `conditions`, `counts`, `commands`, `dialogue` and `answers`;
`certainty` says how certain a reading is. `lists` reads items and steps with their introductions. `unread_sentences`
lists what none of them has read. `wording` gives a rule that the engine cannot decide the words of its clause.
`waivers` finds the sentences that take back a rule of another one. All of them find tools with `binding`, compare words
with `vocabulary` and write engine rules as `readings` defines them. The rules found are parsed like those of any rule
file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from bylaw.comply.model import EngineItem, PromptRule, PromptRules, Tier, ToolSpec
from bylaw.comply.prompt.binding import bind
from bylaw.comply.prompt.certainty import (
    LESS_THAN_CERTAIN,
    in_doubt,
    sentences_before,
    topic_of,
    why_limited,
    why_part_of_a_case,
)
from bylaw.comply.prompt.clauses import MAX_SENTENCE, read_clauses, read_sentence
from bylaw.comply.prompt.comparisons import stated_today
from bylaw.comply.prompt.layout import Statement, read_layout
from bylaw.comply.prompt.lines import MAX_PROMPT
from bylaw.comply.prompt.lists import (
    find_step_lists,
    is_order,
    leave_other_tasks_open,
    mark_unordered,
    read_statement,
    read_steps,
)
from bylaw.comply.prompt.markers import Force, find_marker, takes_back
from bylaw.comply.prompt.preconditions import read_preconditions
from bylaw.comply.prompt.readings import shorten
from bylaw.comply.prompt.statements import list_unread
from bylaw.comply.prompt.unread_sentences import list_answered
from bylaw.comply.prompt.vocabulary import Tools, any_case
from bylaw.comply.prompt.waivers import find_doubts, find_permitted, find_waived, take_back, tools_called
from bylaw.model.ports import Embedder
from bylaw.model.rule import RuleSet
from bylaw.rules.loader import parse_rules

_EXCEPTED = "the next sentence makes an exception"
_PERMITTED = "a later sentence permits it in some cases"
_OTHERS_MAY = any_case(r"\W*(?!(?:you|we|it|this|the|agents?|assistants?)\b)[\w'-]+(?: [\w'-]+){0,3}? (?:may|can)\b")
_MAY = any_case(r"\b(?:may|can|are allowed to|is allowed)\b")
_FIRST = any_case(
    r"\W*(?:(?:always|please|you must) )*"
    r"(?:(?:call|run|use) `?(?P<name>\w+)`? (?:first|beforehand)|`?(?P<other>\w+)`? (?:must|should|has to|needs to)"
    r" (?:always )?be (?:called|run|used) (?:first|beforehand|before(?: this)?))\W*"
)
"""in the section of a tool: `get_pass must be called first`"""
_NAME = re.compile(r"\w+_\w+")
_MOST_OWN_SENTENCES = 12
"""that nobody says by chance, without places that are filled in"""
_FARTHEST = 200
"""sentences before an exception or a permission that it may take something from"""
MAX_STATEMENTS = 3_000
"""read by grammar, at about a millisecond each; the rest is reported as unread"""
_NEEDS = re.compile(r"G \((?P<call>tool\([^()/]*\)) -> (?P<when>[OF]) (?:tool|result)\((?P<needed>[^()/]*)\)\)")
"""a call that needs another one before or behind it"""
_NEEDED_FAILED = "each call that it needs failed"
DONE = "-done"
"""how the id of a rule ends that says that the calls which another rule needs have not failed"""
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
    stated: Sequence[PromptRule] = (),
) -> PromptRules:
    """`today`: the day of the trace, for a prompt that does not say it. `embedder`: a second vote on bindings.

    `stated`: the rules of another reading of the prompt, such as one without traces. A rule has the same id in both.
    """
    rules = extract_rules(prompt, tools=tools, aliases=aliases, today=today, embedder=embedder, stated=stated)
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
    stated: Sequence[PromptRule] = (),
) -> tuple[PromptRule, ...]:
    """Every rule found, in the order of the prompt, each with an id of its own and its place.

    `stated`: as for `read_prompt`.
    """
    known = {tool.name for tool in tools}
    statements = read_layout(prompt, known)
    named = dict.fromkeys(one.tool for one in statements if one.tool is not None and one.tool not in known)
    every = Tools(
        [*tools, *(ToolSpec(name=name) for name in named)],
        aliases,
        today=stated_today(prompt) or today,
        embedder=embedder,
    )
    fits = (one.text for one in statements if 60 <= len(one.text) <= 200 and not set('{}<>[]`*"') & set(one.text))
    every.sentences = tuple(islice(dict.fromkeys(fits), _MOST_OWN_SENTENCES))
    read = statements[:MAX_STATEMENTS]
    mark_unordered(read)
    found = [_read(statement, every) for statement in read]
    for index, statement in enumerate(read[1:], 1):
        mentioned = [name for name in _NAME.findall(statement.text[:MAX_SENTENCE]) if name in every.specs]
        if takes_back(
            statement.text[:MAX_SENTENCE], is_tied=not statement.leads or statement.is_below or bool(mentioned)
        ):
            _except(found, read, index, mentioned)
        elif _MAY.search(statement.text[:MAX_SENTENCE]):
            _permit(found, read, index, every)
    permitted = find_permitted(found, read, every)
    ruled = _ruled_in(found, read)
    for index, some in enumerate(found):
        for number, rule in enumerate(some):  # in place: what is left open is no rule to those behind it
            some[number] = _weigh(rule, found, read, index, every, ruled)
    waived, doubts = find_waived(found, read, every), find_doubts(found, read, every)
    found = [[take_back(rule, permitted, waived, doubts) for rule in some] for some in found]
    rules = [*(rule for some in found for rule in some), *list_answered(read, every)]
    lists = [(one.parts, [rule for rule in some if is_order(rule)]) for one, some in zip(read, found, strict=True)]
    for introduction, steps in find_step_lists(read):
        ordered = read_steps(steps, every, introduction=introduction)
        ordered = [take_back(rule, permitted, waived, doubts) for rule in ordered]
        names = {step.start for step in steps if ordered and step.text.strip(" .;`*") in every.specs}
        rules = [rule for rule in rules if rule.start not in names] + ordered  # a step that is only a name is read here
        lists.append((tuple(steps), ordered))
    rules = leave_other_tasks_open(rules, lists)
    if unread := statements[MAX_STATEMENTS:]:
        rules.append(
            PromptRule(
                rule_id=_UNREAD,
                description=f"{len(unread):,} sentences after the first {MAX_STATEMENTS:,}",
                start=unread[0].start,
                end=unread[-1].end,
                undecided=f"only the first {MAX_STATEMENTS:,} sentences are read",
            )
        )
    return tuple(_with_ids(rules, stated))


def _read(statement: Statement, tools: Tools) -> list[PromptRule]:
    """In the section of a tool a sentence is a precondition of the tool, unless it addresses the agent."""
    in_section = statement.tool is not None
    found = _read_in_section(statement, tools) if in_section else read_statement(statement, tools)
    why = why_limited(statement, tools, in_section=in_section)
    return [rule.leave_open(why) for rule in found] if why else found


def _read_in_section(statement: Statement, tools: Tools) -> list[PromptRule]:
    first = _FIRST.fullmatch(statement.text)
    if first and (name := first["name"] or first["other"]) in tools.specs and name != statement.tool:
        text = f"Call {name} before {statement.tool}."
        rules = read_statement(Statement(text, statement.start, statement.start + len(text)), tools)
        return [replace(rule, end=statement.end, description=statement.text) for rule in rules]
    if _ADDRESSES_THE_AGENT.match(statement.text):
        stated = read_statement(statement, tools)
        if any(rule.items for rule in stated):
            return stated
    preconditions = list(read_preconditions(statement, tools))
    return preconditions or read_statement(statement, tools) or list_unread(statement, tools)


def _weigh(
    rule: PromptRule,
    found: Sequence[list[PromptRule]],
    read: Sequence[Statement],
    index: int,
    tools: Tools,
    ruled: Mapping[str, set[int]],
) -> PromptRule:
    """The rule; undecided if its neighbours set a case, and at most likely if they may."""
    if not rule.items or read[index].tool is not None:
        return rule
    before = list(sentences_before(rule, found, read, index))
    if why := why_part_of_a_case(rule, before):
        return rule.leave_open(why)
    topic = topic_of(rule, read[index], tools)
    is_elsewhere = any(len(ruled.get(tool, ())) > 1 for tool in _acting_tools(rule))
    if topic and (is_elsewhere or any(map(_is_due, rule.items))):
        return rule.leave_open(f"it stands under `{shorten(topic)}`")
    if rule.tier is not Tier.CERTAIN or not (topic or in_doubt(read[index], before)):
        return rule
    return replace(rule, tier=Tier.LIKELY, confidence=min(rule.confidence, LESS_THAN_CERTAIN))


def _acting_tools(rule: PromptRule) -> list[str]:
    """The tools whose calls a rule limits."""
    return tools_called(rule.trigger) or tools_called(rule.forbidden_action or "")


def _ruled_in(found: Sequence[list[PromptRule]], read: Sequence[Statement]) -> dict[str, set[int]]:
    """Each tool with the sections that have a rule on its calls: a rule of one of several holds for its topic only."""
    places: dict[str, set[int]] = {}
    for statement, rules in zip(read, found, strict=True):
        for tool in {tool for rule in rules for tool in _acting_tools(rule)}:
            places.setdefault(tool, set()).add(statement.block)
    return places


def _is_due(item: EngineItem) -> bool:
    """Whether something has to be done in every conversation, whatever it is about."""
    formula = item.item["params"].get("formula", "")
    return item.item["kind"] == "must_call_once" or str(formula).startswith("F ")


def _except(found: list[list[PromptRule]], read: Sequence[Statement], index: int, names: Sequence[str]) -> None:
    """Leave open what a sentence takes back: the two sentences before it in its paragraph, or all about its tools."""
    for before in range(index - 1, max(index - _FARTHEST, -1), -1):
        is_about = any(name in read[before].text for name in names)
        if read[before].block != read[index].block or (not names and before < index - 2):
            break
        if is_about or not names or (before == index - 1 and not read[index].leads):
            found[before] = [rule.leave_open(_EXCEPTED) for rule in found[before]]
        if read[before].leads and not names:
            break


def _permit(found: list[list[PromptRule]], read: Sequence[Statement], index: int, tools: Tools) -> None:
    """`if we cancelled the flight, you may refund without approval`: what is said above of the tool is not all.

    So does `clubs may book up to 6 lanes` for the bounds in the section of a tool.
    """
    statement = read[index]
    sentence = read_sentence(statement.text, tools) if len(statement.text) <= MAX_SENTENCE else None
    for clause in read_clauses(sentence) if sentence else ():
        marker = find_marker(clause.main.text)
        is_permit = marker is not None and marker.force is Force.PERMIT and clause.parts
        is_bound = statement.tool is not None and _OTHERS_MAY.match(clause.main.text) is not None
        if sentence is None or not (is_permit or is_bound):
            continue
        bound = (statement.tool,) if is_bound else bind(clause.main.text, sentence).tools
        names = [f"call_tool: {name}" for name in bound if name != "*"]
        for before in range(index - 1, max(index - _FARTHEST, -1), -1):
            if read[before].block != statement.block:
                break
            found[before] = [
                rule.leave_open(_PERMITTED)
                if any(name in f"{rule.trigger} {rule.forbidden_action}" for name in names)
                and is_bound == any(one.aspect in ("argument", "count") for one in rule.items)
                else rule
                for rule in found[before]
            ]


def _with_ids(rules: Iterable[PromptRule], stated: Sequence[PromptRule]) -> Iterator[PromptRule]:
    """The rules in the order of the prompt, each with an id of its own; so are their items.

    A rule has the id of the stated rule at its place. One without has an id that no stated rule has.
    """
    taken = dict.fromkeys((rule.rule_id for rule in stated), 1)
    known: dict[int, list[str]] = {}
    for rule in stated:
        known.setdefault(rule.start, []).append(rule.rule_id)
    for rule in sorted(rules, key=lambda rule: rule.start):
        ids = known.get(rule.start)
        rule_id = ids.pop(0) if ids else _free_id(rule.rule_id, taken)
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
    rules = [replace(rule, items=tuple(_add_failure_rule(one, taken) for one in rule.items)) for rule in rules]
    owners = {one.item["id"]: rule.rule_id for rule in rules for one in rule.items}
    done = {one.done["id"]: rule.rule_id for rule in rules for one in rule.items if one.done}
    items = [item for rule in rules for one in rule.items for item in (one.item, one.done) if item]
    found = parse_rules(json.dumps(items), file="<prompt>", format="json") if items else RuleSet(())
    why = "; ".join(dict.fromkeys(problem.message for problem in found.diagnostics if problem.is_error))
    parsed = {rule.id: replace(rule, span=None) for rule in found.rules}
    return PromptRules(
        sha256=prompt_hash(prompt),
        rules=tuple(rules),
        engine=tuple(rule for rule in parsed.values() if rule.id not in done),
        done={
            owner: tuple(rule for rule in parsed.values() if done.get(rule.id) == owner)
            for owner in dict.fromkeys(done.values())
        },
        owners={item: rule for item, rule in owners.items() if item in parsed},
        unusable={rule: f"a part of it cannot be run: {why}" for item, rule in owners.items() if item not in parsed},
        notes=_notes(prompt, rules),
    )


def _item(one: EngineItem, rule: PromptRule, taken: dict[str, int]) -> EngineItem:
    """The item with an id of its own. A prompt speaks about each conversation, so its rules have session scope."""
    item_id = _free_id(str(one.item.get("id", rule.rule_id)), taken)
    return EngineItem({"id": item_id, "scope": "session"} | one.item | {"id": item_id}, one.aspect, one.tier)


def _add_failure_rule(one: EngineItem, taken: Mapping[str, int]) -> EngineItem:
    """The item with a second rule, which is broken if the calls that must come before or behind a call all failed.

    A call that failed did nothing. A count has no such rule: it would be inconclusive wherever the trace does not say
    which calls failed.
    """
    params = one.item.get("params", {})
    if one.item["kind"] == "must_call_before":
        call, when, needed = f"tool({_names(params['second'])})", "O", _names(params["first"])
    elif (found := _NEEDS.fullmatch(str(params.get("formula", "")))) and "over" not in params:
        call, when, needed = found["call"], found["when"], found["needed"]
    else:
        return one
    name = f"{one.item['id']}{DONE}"
    if name in taken:
        return one
    failed, done = (f"{when} result({needed}, error = {flag})" for flag in ("true", "false"))
    formula = f"G ({call} -> !({failed} & !{done}))"
    params = {"formula": formula, "message": _NEEDED_FAILED}
    return replace(one, done={**one.item, "id": name, "kind": "temporal", "params": params})


def _names(tools: str | Sequence[str]) -> str:
    return " | ".join(json.dumps(one) for one in ([tools] if isinstance(tools, str) else tools))


def _notes(prompt: str, rules: Sequence[PromptRule]) -> tuple[str, ...]:
    if not prompt.strip():
        return ("the prompt is empty",)
    if len(prompt) > MAX_PROMPT:
        return (f"only the first {MAX_PROMPT:,} characters of the prompt were read",)
    return tuple(rule.undecided for rule in rules if rule.rule_id == _UNREAD and rule.undecided)
