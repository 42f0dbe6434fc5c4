"""Lists: what an introduction demands of its items, and the order of steps.

An item is read with the sentence that introduces it, and again by itself for what else it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.model import PromptRule, Tier
from bylaw.comply.prompt.binding import Bound, bind, names_tool
from bylaw.comply.prompt.certainty import LESS_THAN_CERTAIN, why_limited, why_tools_missing
from bylaw.comply.prompt.clauses import MAX_SENTENCE, Sentence, read_clauses, read_sentence
from bylaw.comply.prompt.layout import Statement, forbids_items, goes_on
from bylaw.comply.prompt.lines import limits_scope
from bylaw.comply.prompt.markers import Force, Marker, find_marker, imperative_at, takes_back
from bylaw.comply.prompt.readings import NO_TIME, Reading, View, called_before, extra_words, shorten
from bylaw.comply.prompt.statements import describe, marker_of, place_rule, read_alone, read_forbidden_item
from bylaw.comply.prompt.step_order import denies_order, denies_order_beside, names_steps
from bylaw.comply.prompt.unread_sentences import unread_reading
from bylaw.comply.prompt.vocabulary import Tools, any_case, roots
from bylaw.comply.prompt.waivers import tools_called

_OF_ITS_STEP = "it may hold for its step only"
_IN_ORDER = any_case(
    r"\bin (?:this|the following|the given|that|exactly this|sequential)? ?order\b(?! of\b)"
    r"|\bfollow(?:ing)? (?:these|the|this)\b|\bthese steps\b|\bin sequence\b|\bstep by step\b|\bsteps (?:below|must)\b"
)
_IN_SOME_CASES = any_case(
    r"\W*(?:otherwise|else|if (?:not|so)|alternatively|optionally|or|in (?:that|this|the other) case|as a fallback)\b"
)
"""words at the beginning of a step that is taken only in some cases"""
_TASK = any_case(r"\W*(?:how )?to (?P<task>\w[^:,.]*)")
"""`To cancel an order, follow these steps:`"""
_STEPS = any_case(
    rf"\b(?:steps?|procedures?|process|workflow|flow|routine|sequence|checklist|do the following)\b|{_IN_ORDER.pattern}"
)
"""words in the introduction of a list whose items are done in order; `Your main tools:` has none"""
_NOT_TAKEN = any_case(
    r"\b(?:optional(?:ly)?|(?:if|where|when|as) (?:needed|appropriate|necessary|possible|applicable)|maybe|perhaps"
    r"|possibly|usually|sometimes|consider|whether|depending|not|never|no|without|instead of|rather than|except|unlike"
    r"|skip|refuse|decline|stop|cease|avoid|forget|ignore|explain|describe|decide|mention|discuss)\b|n't\b"
)
"""words of a step that may be left out, or that names a tool without calling it"""
_CALLED_BY = any_case(
    r"(?:^|[:(\u2013\u2014-]|\b(?:call(?:ing)?|us(?:e|ing)|run(?:ning)?|invok(?:e|ing)|execut(?:e|ing)|with|via|through"
    r"|then|try|trigger|submit|perform|do|make|start|finish|complete))[\s`*]*(?:(?:the|a|an|first|both|either|to|tool"
    r"|function|tools|functions)[\s`*]+)*(?:[\w.-]+[\s`*]*(?:,|\band\b|\bor\b)[\s`*]*)*$"
)
"""the text before the name of a tool that the step calls"""
_JOINT = any_case(
    r"[\s`*()]*(?:(?:[,;+&/]|\b(?:and|or|then|also|finally|next|call|use|run|the|tool|both|either))[\s`*()]*)+"
)
"""the text between two tools: if the step calls the first, it calls the second too"""
_ALWAYS = any_case(r"\b(?:never|at any time|(?:under|in) (?:any|no) circumstances|ever|at no (?:point|time)|always)\b")
_STEP = Marker(Force.REQUIRE, 0, 0, "call", "medium")


def read_statement(statement: Statement, tools: Tools) -> list[PromptRule]:
    """The rules of one statement, with the list it introduces; none if it demands nothing."""
    if statement.forbidden:
        return read_forbidden_item(statement, tools)
    return _read_list(statement, tools) if statement.parts else read_alone(statement, tools)


class _Step(Struct, frozen=True):
    """An item, and the tools that it says to call."""

    statement: Statement
    called: Bound = Bound()
    undecided: str = ""
    """why the item may mean other calls than these; empty if it cannot"""


def _read_list(statement: Statement, tools: Tools) -> list[PromptRule]:
    """The rules of a list with an introduction: `never do any of these: …`, `before issue_refund, all of these: …`."""
    sentence = read_sentence(statement.text[:MAX_SENTENCE], tools, statement.tool)
    if sentence is None:
        return []
    marker = find_marker(sentence.masked)
    if marker and marker.force is Force.FORBID and not forbids_items(statement.text):
        reading = Reading(name=shorten(sentence.text, 50), undecided=f"it stands under `{shorten(sentence.text)}`")
        return [place_rule(reading, part, marker.severity) for part in statement.parts]
    if marker and marker.force is Force.FORBID:
        return [rule for part in statement.parts for rule in read_forbidden_item(part, tools, statement.text)]
    actor = _actor(sentence)
    for part, below in pairwise(statement.parts):
        if not below.leads and takes_back(below.text[:MAX_SENTENCE], is_tied=True):
            part.follows_condition = True
    steps = [_read_step(part, tools) for part in statement.parts]
    if statement.junction == "chain" and any(set(actor.tools) & set(step.called.tools) for step in steps):
        actor = Bound()  # `to cancel an order, follow these steps`: it is one of them
    if actor and statement.junction == "any":
        return [_require_one(statement, steps, actor)]
    rules = [_require_before(step.statement, step, actor) for step in steps if actor and step.called]
    if statement.junction == "chain":
        under = statement.under or (sentence.text if limits_scope(sentence.text) else "")
        why = f"it stands under `{shorten(under)}`"
        is_ordered = not (_is_unordered((statement, *statement.parts)) or denies_order(sentence.text))
        ordered = rules + (_require_in_order(steps, sentence.text) if is_ordered else [])
        ordered += [rule for step in steps for rule in _read_part(step, tools, step.called and is_ordered)]
        return [rule.leave_open(why) for rule in ordered] if under else ordered
    own = [rule for step in steps for rule in _read_part(step, tools, actor and step.called)]
    why = f"it stands under `{shorten(sentence.text)}`"  # what is forbidden before B may be allowed behind it
    return rules + [rule.leave_open(why) if actor and _forbids_calls(rule) else rule for rule in own]


def _read_part(step: _Step, tools: Tools, is_read: object) -> list[PromptRule]:
    """The rules that an item states by itself. `is_read`: there are rules about its calls already."""
    if is_read and (step.undecided or _only_calls(step, tools)):
        return []
    found = read_alone(step.statement, tools)
    if not found and step.statement.number and _names_tool(step.statement, tools):
        found = [place_rule(unread_reading(step.statement.text), step.statement, "medium")]  # `A and optionally B`
    why = why_limited(step.statement, tools)
    if not why and step.statement.number and not _ALWAYS.search(step.statement.text):
        found = [one.leave_open(_OF_ITS_STEP) if _forbids_calls(one) else one for one in found]
    found = [one.leave_open(why) for one in found] if why else found
    return [_as_likely(rule) for rule in found if not (is_read and rule.undecided == NO_TIME)]


def _names_tool(statement: Statement, tools: Tools) -> bool:
    """Whether the text of an item names a tool: `search` in `call search`, but not in `search for it`."""
    sentence = read_sentence(statement.text[:MAX_SENTENCE], tools, statement.tool)
    return sentence is not None and names_tool(sentence.masked, sentence)


def _forbids_calls(rule: PromptRule) -> bool:
    return any(one.item["kind"] == "no_call" for one in rule.items)


def _as_likely(rule: PromptRule) -> PromptRule:
    """The rule, at most likely: an item belongs to the task of its list, which the list rarely names."""
    if rule.tier is not Tier.CERTAIN:
        return rule
    return replace(rule, tier=Tier.LIKELY, confidence=min(rule.confidence, LESS_THAN_CERTAIN))


def _actor(sentence: Sentence) -> Bound:
    """The tools whose calls depend on the list: `before calling B`, `B requires`, `to call B`."""
    clauses = read_clauses(sentence)
    part = clauses[0].part("before", "if") if clauses else None
    found = bind(part.text if part else sentence.masked, sentence, likeness=False)
    return Bound() if found.is_any else found


def _read_step(part: Statement, tools: Tools) -> _Step:
    """The tools that an item says to call; none if it is conditional or forbids or permits something."""
    sentence = read_sentence(part.text[:MAX_SENTENCE], tools, part.tool)
    if part.follows_condition or part.under or _IN_SOME_CASES.match(part.text) or sentence is None:
        return _Step(part)
    clauses = read_clauses(sentence)
    if any(clause.part("if", "unless", "iff") for clause in clauses):
        return _Step(part)
    marker = find_marker(sentence.masked)
    if marker and marker.force in (Force.FORBID, Force.PERMIT, Force.WAIVE):
        return _Step(part)
    if why_limited(part, tools) or limits_scope(part.text) or _NOT_TAKEN.search(sentence.masked) or not part.leads:
        return _Step(part)
    found = _called_tools(bind(sentence.masked, sentence, likeness=False), sentence.masked)
    if not found or found.is_any:
        return _Step(part)
    views = (View(clause, marker_of(clause, sentence) or _STEP, sentence) for clause in clauses)
    return _Step(part, found, next(filter(None, (why_tools_missing(view, view.main) for view in views)), ""))


def _called_tools(bound: Bound, text: str) -> Bound:
    """Of tools that a step names, those that it calls: `call A and B to prepare for C` calls A and B."""
    if not bound.is_named:
        return bound
    called, end, is_choice = list[str](), -1, bound.is_choice
    names = sorted(
        (found.span(), name) for name in bound.tools for found in re.finditer(rf"\b{re.escape(name)}\b", text)
    )
    if len({name for _, name in names}) < len(bound.tools):  # the step names a tool by an alias
        return bound
    for (start, behind), name in names:
        joint = _JOINT.fullmatch(text[end:start]) if called else None
        if joint or _CALLED_BY.search(text[:start]):
            is_choice = is_choice or (joint is not None and "/" in joint[0])
            if name not in called:
                called.append(name)
            end = behind
    return replace(bound, tools=tuple(called), is_choice=is_choice and len(called) > 1)


def _require_before(
    statement: Statement, first: _Step, second: Bound, *others: Bound, undecided: str = ""
) -> PromptRule:
    """Demand each of the first tools, or one of them if they are a choice, before the second ones."""
    called = first.called
    reading = Reading(
        name=f"{called.names} before {second.names}",
        drafts=tuple(called_before(group, second.tools) for group in called.groups),
        trigger=second.calls,
        required=called.calls,
        bounds=(called, second, *others),
        ceiling=LESS_THAN_CERTAIN,  # a list of steps belongs to a task, which it rarely names
    )
    if why := first.undecided or undecided:
        reading = replace(reading, drafts=(), undecided=why)
    return place_rule(reading, statement, "high")


def _require_one(statement: Statement, steps: Sequence[_Step], actor: Bound) -> PromptRule:
    """Demand one of the items before the call. Any item may have allowed the call, so all of them must name tools."""
    why = next((step.undecided for step in steps if step.undecided), "")
    if not all(step.called for step in steps):
        why = "one of its alternatives names no tool"
    elif any(len(step.called.groups) > 1 for step in steps):
        why = "one of its alternatives names several tools"
    if why:
        reading = Reading(name=f"before {actor.names}", trigger=actor.calls, undecided=why)
        return place_rule(reading, statement, "high")
    names = tuple(dict.fromkeys(name for step in steps for name in step.called.tools))
    one = _Step(statement, Bound(names, is_choice=len(names) > 1))
    return _require_before(statement, one, actor, *(step.called for step in steps))


def _require_in_order(steps: Sequence[_Step], introduction: str) -> list[PromptRule]:
    """Demand the tools of each step before those of the next step that has any.

    `To cancel an order, follow these steps:` orders what comes before `cancel_order`; other calls have other tasks too.
    """
    task = _TASK.match(introduction)
    words = set(roots(task["task"])) if task else set[str]()
    why = f"it stands under `{shorten(introduction)}`"

    def why_open(step: _Step) -> str:
        return step.undecided or (
            why if task and not words & {one for name in step.called.tools for one in roots(name)} else ""
        )

    return [
        describe(
            _require_before(second.statement, first, second.called, undecided=why_open(second)),
            f"{first.statement.text} … {second.statement.text}",
        )
        for some in _split_at_restart(steps)
        for first, second in pairwise(step for step in some if step.called)
        if not set(first.called.tools) & set(second.called.tools)
    ]


def mark_unordered(statements: Sequence[Statement]) -> None:
    """Mark the lists whose order a sentence right above or below them takes back: `The order does not matter.`"""
    for index, one in enumerate(statements):
        if one.parts:
            one.is_unordered = one.is_unordered or any(map(_frees_its_list, one.parts))
        elif one.number:
            one.is_unordered = one.is_unordered or _frees_its_list(one)
        elif denies_order_beside(one.text[:MAX_SENTENCE]):
            for near in _lists_beside(statements, index):
                for marked in (near, *near.parts[-1:]):  # the list may go on below
                    marked.is_unordered = True


def _frees_its_list(item: Statement) -> bool:
    """`3. Call A. These steps can be taken in any order.`"""
    text = item.text[:MAX_SENTENCE]
    return not item.leads and names_steps(text) and denies_order_beside(text)


def _lists_beside(statements: Sequence[Statement], index: int) -> Iterator[Statement]:
    """The item or list right above the paragraph of a sentence, and the one right below it."""
    first = last = index
    while first and not statements[first].leads:
        first -= 1
    while last + 1 < len(statements) and not (statements[last + 1].leads or statements[last].parts):
        last += 1
    above = [] if statements[index].text.rstrip("*_ ").endswith(":") else statements[max(first - 1, 0) : first]
    below = statements[last : last + 1] if statements[last].parts else statements[last + 1 : last + 2]
    for near in (*above, *below):
        if near.block == statements[index].block and (near.number or near.parts):
            yield near


def _is_unordered(statements: Sequence[Statement]) -> bool:
    return any(one.is_unordered for one in statements)


def _split_at_restart(steps: Sequence[_Step]) -> list[list[_Step]]:
    lists: list[list[_Step]] = []
    for step in steps:
        if not lists or not goes_on(lists[-1][-1].statement, step.statement):
            lists.append([])
        lists[-1].append(step)
    return lists


# -- numbered lists without an introduction of their own ---------------------------------------------------------------


def read_steps(statements: Sequence[Statement], tools: Tools, *, introduction: str = "") -> list[PromptRule]:
    """The order of numbered steps, if the introduction says that they are in order or every step names a tool."""
    marker = find_marker(introduction[:MAX_SENTENCE])
    if marker and marker.force is Force.FORBID and introduction.rstrip("*_ ").endswith(":"):
        return []
    if _is_unordered(statements) or denies_order(introduction[:MAX_SENTENCE]):
        return []
    task = introduction
    if re.search(r":\s*\w", introduction[:MAX_SENTENCE]):  # `Work in this order: A, then B.` has a list of its own
        introduction = ""
    if introduction.rstrip("*_ ").endswith(":") and not _STEPS.search(introduction):
        return []
    steps = [_read_step(statement, tools) for statement in statements]
    if not _IN_ORDER.search(introduction) and not all(_only_calls(step, tools) for step in steps):
        return []
    if limits_scope(introduction) or any(statement.under for statement in statements):
        return []
    return _require_in_order(steps, task)


def _only_calls(step: _Step, tools: Tools) -> bool:
    """Whether a step is nothing but a call. A numbered list of tools with descriptions has no order."""
    sentence = read_sentence(step.statement.text[:MAX_SENTENCE], tools, step.statement.tool)
    if sentence is None or not step.called.is_named:
        return False
    is_call = imperative_at(sentence.masked) is not None or sentence.masked.strip(" .;`*") in tools.specs
    return is_call and not extra_words(sentence.masked, step.called, sentence)


def is_order(rule: PromptRule) -> bool:
    """Whether it says that one call comes before another."""
    return any(one.item["kind"] == "must_call_before" for one in rule.items)


def leave_other_tasks_open(
    rules: Sequence[PromptRule], lists: Sequence[tuple[Sequence[Statement], Sequence[PromptRule]]]
) -> list[PromptRule]:
    """Leave the order of two steps undecided if another list makes the second call without the first.

    Each list describes another task, and a trace does not show which task the agent works on.
    """
    places: dict[str, dict[int, set[str]]] = {}
    """for each tool and each list that calls it: the calls that come before it there"""
    starts: dict[int, int] = {}
    """the list of each item; a list that goes on after a sentence begins with the last item before the sentence"""
    for parts, ordered in lists:
        number = starts.get(parts[0].start, len(starts)) if parts else -1
        starts |= {part.start: number for part in parts}
        for rule in ordered:
            for tool in tools_called(rule.required_action or ""):
                places.setdefault(tool, {}).setdefault(number, set())
            for tool in tools_called(rule.trigger):
                places.setdefault(tool, {}).setdefault(number, set()).add(rule.required_action or "")
    why = "another list of steps makes this call without the one before it"
    return [
        rule.leave_open(why)
        if rule.start in starts
        and is_order(rule)
        and any(
            (rule.required_action or "") not in needed
            for tool in tools_called(rule.trigger)
            for needed in places.get(tool, {}).values()
        )
        else rule
        for rule in rules
    ]


def find_step_lists(statements: Sequence[Statement]) -> Iterator[tuple[str, list[Statement]]]:
    """Runs of numbered items outside the sections of tools, each with the sentence before it.

    A sentence between two steps does not end the list if the numbers go on. If it comes after a list with an
    introduction, the last step of that list is the first one here.
    """
    introduction, steps, block, between = "", list[Statement](), 0, ""
    for statement in statements:
        is_step = statement.number and statement.tool is None
        if is_step and not statement.leads:
            if steps and takes_back(statement.text[:MAX_SENTENCE], is_tied=True):
                steps[-1].follows_condition = True  # `Call A. Skip this if …`
            if steps and statement.is_unordered:
                steps[-1].is_unordered = True
            continue
        last = steps[-1].number if steps else -1
        is_next = statement.number == last + 1 or (statement.number == last and not between)
        if statement.block != block or (is_step and not is_next):  # a heading ends what stands above it
            if len(steps) > 1:
                yield introduction, steps
            introduction, steps = between if statement.block == block else "", []
            block, between = statement.block, ""
        if is_step:
            steps.append(statement)
            between = ""
        else:
            between = statement.text
        if statement.junction == "chain" and statement.parts[-1].number:
            if len(steps) > 1:
                yield introduction, steps
            introduction, steps = statement.text, [one for one in statement.parts if one.leads][-1:]
    if len(steps) > 1:
        yield introduction, steps
